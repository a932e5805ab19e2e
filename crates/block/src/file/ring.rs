//! Batches through io_uring: all requests of a batch are handed to the kernel with few system calls and are in
//! progress at once.
//!
//! A ring belongs to one batch at a time; between batches it waits in the device's pool, so threads do not share
//! one. [`Ring::run`] returns only when the kernel has given back every buffer, whatever happens meanwhile: the
//! count of entries that the kernel owns is kept in [`Owned`], which waits for them when it is dropped, also during
//! a panic. Only then do the borrows of the buffers end.
//!
//! Where io_uring is missing or forbidden, as in many containers, the pool says so once and for all and batches
//! are done with positioned reads and writes.
//!
//! Locks: the pool's list of idle rings, class `DEVICE`, never held across a system call.

#![expect(unsafe_code, reason = "the kernel reads and writes the buffers of requests by their addresses")]

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;
use undercroft_sync::{Mutex, order};

use crate::Request;

/// Requests in progress at once; a longer batch follows as these complete.
const ENTRIES: u32 = 128;

/// Rings kept between batches; more threads than this make and drop theirs.
const IDLE_RINGS: usize = 16;

/// Longest part of a request handed over at once: the kernel's lengths have 32 bits, and it cuts at 2 GiB.
const PART_BYTES: usize = 1 << 30;

/// Why a batch was not carried out.
#[derive(Debug)]
pub(super) enum Failure {
    /// This request failed.
    Request {
        /// Its place in the batch.
        index: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not take batches; the requests are to be carried out another way, from the start.
    Refused,
}

/// The rings of one device.
pub(super) struct RingPool {
    idle: Mutex<Vec<Ring>>,
    /// Set once the kernel has refused for good. No other memory is ordered by it: seeing it late costs one more
    /// refusal.
    refused: AtomicBool,
}

impl RingPool {
    /// A pool that makes its first ring when the first batch asks for it.
    pub(super) fn new() -> Self {
        Self { idle: Mutex::new(&order::DEVICE, Vec::new()), refused: AtomicBool::new(false) }
    }

    /// Whether the kernel has not refused so far.
    pub(super) fn is_usable(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// A ring for one batch, or `None` if there is none to be had, now or ever.
    pub(super) fn take(&self) -> Option<PooledRing<'_>> {
        if !self.is_usable() {
            return None;
        }
        let idle = self.idle.lock().pop();
        let ring = match idle {
            Some(ring) => ring,
            None => match Ring::new() {
                Ok(ring) => ring,
                Err(error) => {
                    // Running out of memory or descriptors passes; anything else is how this kernel is set up.
                    let passing = [Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::INTR];
                    if !Errno::from_io_error(&error).is_some_and(|errno| passing.contains(&errno)) {
                        self.refused.store(true, Ordering::Relaxed);
                    }
                    return None;
                }
            },
        };
        Some(PooledRing { pool: self, ring: Some(ring) })
    }
}

impl fmt::Debug for RingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingPool").field("usable", &self.is_usable()).finish_non_exhaustive()
    }
}

/// A ring in use; goes back to its pool, unless it has broken.
pub(super) struct PooledRing<'p> {
    pool: &'p RingPool,
    ring: Option<Ring>,
}

impl PooledRing<'_> {
    /// Carries out all requests and waits for all of them. After a failure of one, those that have not been started
    /// are left out.
    ///
    /// # Errors
    /// The first request that failed, or that the kernel does not take batches.
    pub(super) fn run(&mut self, file: &File, requests: &mut [&mut Request<'_>]) -> Result<(), Failure> {
        let Some(mut ring) = self.ring.take() else { return Err(Failure::Refused) };
        let result = ring.run(file, requests);
        match result {
            Err(Failure::Refused) => self.pool.refused.store(true, Ordering::Relaxed),
            Ok(()) | Err(Failure::Request { .. }) => self.ring = Some(ring),
        }
        result
    }
}

impl Drop for PooledRing<'_> {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            let mut idle = self.pool.idle.lock();
            if idle.len() < IDLE_RINGS {
                idle.push(ring);
            }
        }
    }
}

/// One submission and completion queue, with nothing in them between batches.
struct Ring {
    uring: IoUring,
}

impl Ring {
    /// A ring that is known to do positioned reads and writes (Linux 5.6 and later).
    fn new() -> io::Result<Self> {
        let uring = IoUring::new(ENTRIES)?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        if !(probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { uring })
    }

    /// See [`PooledRing::run`].
    fn run(&mut self, file: &File, requests: &mut [&mut Request<'_>]) -> Result<(), Failure> {
        let mut parts: Vec<Part> = requests.iter_mut().map(|request| Part::of(request)).collect();
        let mut waiting: VecDeque<usize> = (0..parts.len()).filter(|&index| parts[index].len > 0).collect();
        let mut failure = None;
        let mut owned = Owned { uring: &mut self.uring, count: 0 };
        loop {
            while failure.is_none()
                && owned.count < ENTRIES as usize
                && let Some(index) = waiting.pop_front()
            {
                let entry = parts[index].entry(file).user_data(index as u64);
                // SAFETY: the entry names the file, which `run` borrows, and what is left of the buffer of request
                // `index`, which is borrowed through `requests` (exclusively, for a read) for longer than `owned`
                // lives. `owned` counts the entry, and waits for its completion before it ends. Nothing in `run`
                // touches a request once its address has been taken, and a request that is in progress is not
                // among those waiting, so it has one entry at most.
                unsafe { owned.push(&entry) };
            }
            if owned.count == 0 {
                break;
            }
            if !owned.submit_and_wait_for_one() {
                return Err(Failure::Refused);
            }
            while let Some((index, result)) = owned.pop() {
                match parts[index].complete(result) {
                    Progress::Done => {}
                    Progress::Again => waiting.push_back(index),
                    Progress::Failed(source) => {
                        failure.get_or_insert(Failure::Request { index, source });
                    }
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// A request as the kernel sees it, and how far it has come.
#[derive(Clone, Copy, Debug)]
struct Part {
    buffer: Buffer,
    /// First byte on the device.
    offset: u64,
    /// Length of the request in bytes.
    len: usize,
    /// Bytes that are done.
    done: usize,
}

/// Where a request's bytes lie.
#[derive(Clone, Copy, Debug)]
enum Buffer {
    Read(*mut u8),
    Write(*const u8),
}

/// What a completion means for its request.
#[derive(Debug)]
enum Progress {
    Done,
    /// Cut short or interrupted: the rest is to be handed over again.
    Again,
    Failed(io::Error),
}

impl Part {
    fn of(request: &mut Request<'_>) -> Self {
        let offset = request.offset();
        let (buffer, len) = match request {
            Request::Read { buf, .. } => (Buffer::Read(buf.as_mut_ptr()), buf.len()),
            Request::Write { data, .. } => (Buffer::Write(data.as_ptr()), data.len()),
        };
        Self { buffer, offset, len, done: 0 }
    }

    /// The entry for what is left.
    fn entry(&self, file: &File) -> squeue::Entry {
        let fd = types::Fd(file.as_raw_fd());
        let len = (self.len - self.done).min(PART_BYTES) as u32;
        let at = self.offset + self.done as u64;
        match self.buffer {
            Buffer::Read(buf) => opcode::Read::new(fd, buf.wrapping_add(self.done), len).offset(at).build(),
            Buffer::Write(data) => {
                opcode::Write::new(fd, data.wrapping_add(self.done), len).offset(at).build()
            }
        }
    }

    /// Takes a completion into account. `result` is a number of bytes or a negated error number.
    fn complete(&mut self, result: i32) -> Progress {
        match usize::try_from(result) {
            Ok(0) => Progress::Failed(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.done += count;
                if self.done == self.len { Progress::Done } else { Progress::Again }
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(result.wrapping_neg());
                match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN) => Progress::Again,
                    _ => Progress::Failed(error),
                }
            }
        }
    }
}

/// A ring in use, and the number of its entries whose completion has not been seen.
struct Owned<'r> {
    uring: &'r mut IoUring,
    count: usize,
}

impl Owned<'_> {
    /// Puts an entry into the submission queue.
    ///
    /// # Safety
    /// What the entry points to stays valid, and is not used otherwise, until its completion has been popped or
    /// `self` has been dropped.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as promised by the caller.
        let pushed = unsafe { self.uring.submission().push(entry) };
        // The queue has as many places as entries are ever in progress.
        pushed.expect("the submission queue has room");
        self.count += 1;
    }

    /// Hands over what is in the submission queue and waits until something is complete. `false` if the kernel
    /// refuses.
    fn submit_and_wait_for_one(&mut self) -> bool {
        match self.uring.submit_and_wait(1) {
            Ok(_) => true,
            // Interrupted, or short of resources until some completions have been taken: try again, a little later
            // if there is nothing to take.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR) => true,
                Some(Errno::AGAIN | Errno::BUSY) => {
                    if self.uring.completion().is_empty() {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    true
                }
                _ => false,
            },
        }
    }

    /// The next completion: the request's index and the kernel's result.
    fn pop(&mut self) -> Option<(usize, i32)> {
        let completion = self.uring.completion().next()?;
        self.count -= 1;
        Some((completion.user_data() as usize, completion.result()))
    }

    /// Entries that the kernel has taken from the submission queue and not completed. The others have never been
    /// seen by it, and never will be once the ring is gone.
    fn in_kernel(&mut self) -> usize {
        self.count - self.uring.submission().len()
    }
}

impl Drop for Owned<'_> {
    /// Waits for everything that the kernel still works on. Normally there is nothing left; after a refusal or a
    /// panic this is what keeps the buffers alive. A request that never completes would hang a positioned read or
    /// write just as well.
    fn drop(&mut self) {
        while self.in_kernel() > 0 {
            if self.pop().is_none() {
                // Completions appear in shared memory by themselves; no call that might be refused is needed.
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{BlockDevice, FileDevice, FileOptions};

    fn file(content: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        file
    }

    /// The machines this is developed and tested on allow io_uring; without it the rest would test nothing.
    fn ring() -> Ring {
        Ring::new().expect("the kernel allows io_uring")
    }

    #[test]
    fn more_requests_than_entries() {
        let content: Vec<u8> = (0..4 * ENTRIES as usize * 10).map(|at| (at / 10) as u8).collect();
        let file = file(&content);
        let mut found = vec![0; content.len()];
        let mut requests: Vec<_> = found
            .chunks_mut(10)
            .enumerate()
            .map(|(index, buf)| Request::Read { offset: index as u64 * 10, buf })
            .collect();
        let mut ring = ring();
        ring.run(&file, &mut requests.iter_mut().collect::<Vec<_>>()).unwrap();
        assert_eq!(found, content);
    }

    #[test]
    fn a_failing_request_is_named_and_the_ring_stays_usable() {
        let file = file(&[7; 1000]);
        let mut ring = ring();
        let (mut good, mut bad) = ([0; 10], [0; 10]);
        let mut requests =
            [Request::Read { offset: 0, buf: &mut good }, Request::Read { offset: 995, buf: &mut bad }];
        let result = ring.run(&file, &mut requests.iter_mut().collect::<Vec<_>>());
        match result {
            Err(Failure::Request { index: 1, source }) => {
                assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof);
            }
            other => panic!("{other:?}"),
        }
        let mut requests = [Request::Read { offset: 0, buf: &mut good }];
        ring.run(&file, &mut requests.iter_mut().collect::<Vec<_>>()).unwrap();
        assert_eq!(good, [7; 10]);
    }

    #[test]
    fn a_write_to_a_file_open_for_reading_fails_with_the_kernels_reason() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(named.path()).unwrap();
        let mut requests = [Request::Write { offset: 0, data: &[1; 10] }];
        match ring().run(&file, &mut requests.iter_mut().collect::<Vec<_>>()) {
            Err(Failure::Request { index: 0, source }) => {
                assert_eq!(Errno::from_io_error(&source), Some(Errno::BADF));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn dropping_waits_for_what_the_kernel_still_owns() {
        // A read from an empty pipe cannot complete before something is written to it.
        let (reader, writer) = io::pipe().unwrap();
        let mut ring = ring();
        let mut buf = [0_u8; 3];
        let read = opcode::Read::new(types::Fd(reader.as_raw_fd()), buf.as_mut_ptr(), 3).build();
        let mut owned = Owned { uring: &mut ring.uring, count: 0 };
        // SAFETY: the buffer and the pipe outlive `owned` and are not used before it is gone.
        unsafe { owned.push(&read) };
        owned.uring.submit().unwrap();
        assert_eq!(owned.in_kernel(), 1);
        let feeder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            io::Write::write_all(&mut { writer }, b"abc").unwrap();
        });
        drop(owned);
        assert_eq!(&buf, b"abc");
        feeder.join().unwrap();
    }

    /// Puts another file in the place of the ring, so that the kernel refuses whatever is asked of it.
    fn break_ring(ring: &Ring) {
        let null = File::open("/dev/null").unwrap();
        // SAFETY: the descriptor is the ring's own and open; ownership is given back before the ring uses it again.
        let mut descriptor = unsafe { OwnedFd::from_raw_fd(ring.uring.as_raw_fd()) };
        rustix::io::dup2(&null, &mut descriptor).unwrap();
        let _ = descriptor.into_raw_fd();
    }

    #[test]
    fn a_kernel_that_refuses_is_not_asked_again() {
        let named = tempfile::NamedTempFile::new().unwrap();
        named.as_file().write_all_at(&[7; 1000], 0).unwrap();
        let device = FileDevice::open(named.path(), FileOptions::read_only()).unwrap();
        let pool = device.rings.as_ref().unwrap();
        break_ring(pool.take().expect("the kernel allows io_uring").ring.as_ref().unwrap());
        assert!(device.uses_io_uring());
        let (mut left, mut right) = ([0; 100], [0; 100]);
        let mut batch =
            [Request::Read { offset: 0, buf: &mut left }, Request::Read { offset: 500, buf: &mut right }];
        device.run_batch(&mut batch).unwrap();
        assert_eq!((left, right), ([7; 100], [7; 100]), "carried out without the ring");
        assert!(!device.uses_io_uring());
        assert!(pool.take().is_none());
    }

    #[test]
    fn completions_are_understood() {
        let fresh = Part::of(&mut Request::Write { offset: 5, data: &[0; 10] });
        let mut part = fresh;
        assert!(matches!(part.complete(4), Progress::Again));
        assert!(matches!(part.complete(-4), Progress::Again), "EINTR");
        assert!(matches!(part.complete(6), Progress::Done));
        assert!(matches!({ fresh }.complete(0), Progress::Failed(_)));
        assert!(matches!({ fresh }.complete(-5), Progress::Failed(e) if e.raw_os_error() == Some(5)));
    }
}
