//! Requests over io_uring: the kernel hands a request to a thread on the processor where its sender runs.
//!
//! Over `/dev/fuse` a request may be answered by a thread on any processor, and waking one that sleeps elsewhere costs
//! more than most answers. Here each processor has a queue of its own, and the threads of that queue run there and
//! nowhere else: the sender falls asleep, the server wakes in its place, answers, and gives the processor back. One
//! system call sends a reply and waits for the next request.
//!
//! **Queues.** The kernel wants at least one entry in the queue of every processor that may ever be there before it
//! sends anything. Each thread of a processor has a ring and one entry, so that a slow thread, with an fsync for example,
//! keeps nothing but its own request. One more thread has the entries of all processors that are not there. That the kernel
//! forgets an inode, for which no caller waits, still comes over `/dev/fuse`.
//!
//! **Memory.** An entry has two areas, which the kernel knows by their addresses: the headers, and the payload of the
//! request and then of the reply. The kernel writes to them only while a command with that entry is under way, and only
//! in a system call of the thread that has the ring. [`Entry`] keeps the state; no reference to an area exists while
//! the kernel has it. Areas of an entry that was never given back are not freed.

#![expect(unsafe_code, reason = "the kernel reads and writes the areas of an entry by their addresses")]

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::NonNull;
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::dispatch::Dispatcher;
use super::ending::Ending;
use super::idle::placement::Placement;
use super::idle::polling::{Latency, Pace};
use super::reply::{self, Reply};
use super::request::{Malformed, Request, unique_of};
use super::{Device, Failures, HEADERS_BYTES, Lost, REQUEST_BYTES, until_lost};

/// The kernel is given an entry.
const REGISTER: u32 = 1;
/// The kernel is given a reply and, with it, the entry back.
const COMMIT_AND_FETCH: u32 = 2;

/// Room for a request's first structure, and for the headers of either direction.
const AREA_BYTES: usize = 128;

/// What an entry's payload area holds: the largest request or reply.
const PAYLOAD_BYTES: usize = REQUEST_BYTES as usize;

/// The payload of a reply lies behind this much room, so that replies are put together where the kernel takes them.
const REPLY_HEADER_BYTES: usize = reply::HEADER_BYTES;

/// The completion by which a thread learns that the connection has ended; others have the numbers of entries.
const ENDED: u64 = u64::MAX;

/// How long a thread waits for its entries then. The kernel gives them back in a moment.
const GRACE: Duration = Duration::from_secs(10);

/// `fuse_uring_req_header`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Headers {
    /// The request's header, and then the reply's.
    in_out: [u8; AREA_BYTES],
    /// The request's first structure.
    op_in: [u8; AREA_BYTES],
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}
const _: () = assert!(size_of::<Headers>() == 288);

/// `fuse_uring_cmd_req`, in the part of a submission that belongs to the command.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 6],
    unused: [u8; 56],
}
const _: () = assert!(size_of::<Command>() == 80);

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Which threads serve which queues.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// For each thread, the processor on which it runs, if it is bound to one, and its queues.
    threads: Vec<(Option<usize>, Vec<u16>)>,
}

impl Plan {
    /// So many threads for each processor that is there. `None` where the system has no io_uring of the kind that is
    /// needed.
    pub(super) fn new(per_processor: usize) -> Option<Self> {
        if !is_possible() {
            return None;
        }
        let possible = processors("possible")?;
        let online = processors("online")?;
        Self::for_processors(&possible, &online, per_processor)
    }

    fn for_processors(possible: &[u16], online: &[u16], per_processor: usize) -> Option<Self> {
        // The kernel numbers queues like processors, without gaps.
        let count = u16::try_from(possible.len()).ok()?;
        let is_online = |queue: &u16| online.contains(queue);
        let mut threads = Vec::new();
        for queue in (0..count).filter(is_online) {
            let thread = || (Some(usize::from(queue)), vec![queue]);
            threads.extend(std::iter::repeat_with(thread).take(per_processor.max(1)));
        }
        let absent: Vec<u16> = (0..count).filter(|queue| !is_online(queue)).collect();
        if !absent.is_empty() {
            threads.push((None, absent));
        }
        Some(Self { threads })
    }

    /// Starts the threads, which serve until the mount is gone, and adds them to those that are `running`.
    pub(super) fn start<'scope>(
        self,
        scope: &'scope thread::Scope<'scope, '_>,
        shared: Shared<'scope>,
        running: &mut Vec<thread::ScopedJoinHandle<'scope, io::Result<()>>>,
    ) -> io::Result<()> {
        let start = |(processor, queues): (Option<usize>, Vec<u16>)| {
            let name = match processor {
                Some(processor) => format!("fuse-cpu-{processor}"),
                None => "fuse-cpu-absent".to_owned(),
            };
            let serve = move || until_lost(shared.lost, || serve(shared, &queues, Placement::on(processor)));
            thread::Builder::new().name(name).spawn_scoped(scope, serve)
        };
        self.threads.into_iter().try_for_each(|thread| {
            running.push(start(thread)?);
            Ok(())
        })
    }
}

/// Whether this process may have rings that take commands for devices.
fn is_possible() -> bool {
    let mut probe = Probe::new();
    let ring = ring(1);
    ring.is_ok_and(|ring| ring.submitter().register_probe(&mut probe).is_ok())
        && probe.is_supported(opcode::UringCmd80::CODE)
}

fn ring(entries: u32) -> io::Result<Ring> {
    IoUring::builder().setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun().build(entries)
}

/// The processors that are `possible`, or `online`.
fn processors(which: &str) -> Option<Vec<u16>> {
    parse_processors(fs::read_to_string(format!("/sys/devices/system/cpu/{which}")).ok()?.trim())
}

/// Numbers as sysfs lists them: `0-3,5`.
fn parse_processors(list: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

/// What the threads have in common.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) device: &'a Device,
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) ending: &'a Ending,
    pub(super) latency: Option<&'a Latency>,
    pub(super) lost: &'a Lost<'a>,
}

/// A thread's work: its entries go to the kernel, and come back each with a request.
fn serve(shared: Shared<'_>, queues: &[u16], mut placement: Placement) -> io::Result<()> {
    let Shared { device, dispatcher, ending, latency, .. } = shared;
    let mut pace = Pace::new(latency);
    let mut ring = ring((queues.len() as u32 + 1).next_power_of_two())?;
    let fd = device.as_fd().as_raw_fd();
    let mut entries: Vec<Entry> = queues.iter().map(|queue| Entry::new(*queue)).collect();
    let mut reply = Reply::new();
    for (index, entry) in entries.iter_mut().enumerate() {
        entry.give(&mut ring, fd, index, REGISTER)?;
    }
    let mut wait = Wait::new(&mut ring, ending)?;
    let mut failures = Failures::default();
    loop {
        match wait.wait(&ring) {
            Ok(true) => failures.end(),
            Ok(false) => {
                dispatcher.complain(NOT_RETURNED);
                return Ok(());
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => continue,
            Err(error) => {
                failures.note(error)?;
                continue;
            }
        }
        loop {
            // Not for the length of the body, which submits.
            let done = ring.completion().next();
            let Some(done) = done else { break };
            wait.note(&done, GRACE)?;
            let index = done.user_data() as usize;
            let Some(entry) = entries.get_mut(index) else { continue };
            entry.held_by_kernel = false;
            match done.result() {
                0.. => {
                    pace.note_request();
                    let bytes = entry.answer(dispatcher, &mut reply);
                    entry.give(&mut ring, fd, index, COMMIT_AND_FETCH)?;
                    placement.note(bytes);
                }
                error => match Errno::from_raw_os_error(-error) {
                    // The mount is gone; the other entries come back in the same way.
                    Errno::NOTCONN | Errno::CANCELED | Errno::NODEV | Errno::CONNABORTED => {}
                    errno => return Err(errno.into()),
                },
            }
        }
        if entries.iter().all(|entry| !entry.held_by_kernel) {
            return Ok(());
        }
    }
}

/// How a thread waits for completions: without a limit, or until a while after the connection's end.
struct Wait {
    /// Once the connection has ended.
    deadline: Option<Instant>,
}

impl Wait {
    /// Prepares the command that completes when the connection ends.
    fn new(ring: &mut Ring, ending: &Ending) -> io::Result<Self> {
        let readable = u32::from(PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(types::Fd(ending.raw()), readable).build().user_data(ENDED);
        // SAFETY: the command has no memory of ours; a descriptor that is closed is an error of the command.
        unsafe { ring.submission().push(&entry.into()) }.map_err(|_| io::Error::other("the ring is full"))?;
        Ok(Self { deadline: None })
    }

    /// Looks whether a completion is that command's: the wait ends after `grace` then.
    ///
    /// # Errors
    /// The command's.
    fn note(&mut self, done: &cqueue::Entry, grace: Duration) -> io::Result<()> {
        if done.user_data() == ENDED {
            if done.result() < 0 {
                return Err(Errno::from_raw_os_error(-done.result()).into());
            }
            self.deadline = Some(Instant::now() + grace);
        }
        Ok(())
    }

    /// Submits what is prepared and waits. Whether there may be a completion; `false` behind the deadline.
    fn wait(&self, ring: &Ring) -> io::Result<bool> {
        let Some(deadline) = self.deadline else { return ring.submit_and_wait(1).map(|_| true) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let limit = types::Timespec::from(left);
        match ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit)) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => Ok(false),
            waited => waited.map(|_| true),
        }
    }
}

/// Sets the number of areas, for which the library has no field.
fn with_len(entry: squeue::Entry128, len: u32) -> squeue::Entry128 {
    // `len` of `struct io_uring_sqe`.
    const LEN_AT: usize = 24;
    // SAFETY: a submission is 128 bytes of plain integers without padding, whichever they are.
    let mut bytes: [u8; size_of::<squeue::Entry128>()] = unsafe { mem::transmute(entry) };
    bytes[LEN_AT..][..4].copy_from_slice(&len.to_ne_bytes());
    // SAFETY: as above.
    unsafe { mem::transmute(bytes) }
}
const _: () = assert!(size_of::<squeue::Entry128>() == 128);

/// An entry of a queue, with its areas.
struct Entry {
    queue: u16,
    /// Between a command and its completion.
    held_by_kernel: bool,
    headers: NonNull<Headers>,
    /// Room for a reply's header, and the payload area.
    buffer: NonNull<[u8]>,
    /// The two areas, as the kernel is told of them.
    areas: Box<[Area; 2]>,
}

/// `struct iovec`.
#[repr(C)]
struct Area {
    base: *mut u8,
    len: usize,
}

impl Entry {
    fn new(queue: u16) -> Self {
        let headers = NonNull::from(Box::leak(Box::new(Headers::new_zeroed())));
        let buffer = vec![0; REPLY_HEADER_BYTES + PAYLOAD_BYTES + HEADERS_BYTES].into_boxed_slice();
        let buffer = NonNull::from(Box::leak(buffer));
        // SAFETY: the offset lies within the allocation.
        let payload = unsafe { buffer.cast::<u8>().add(REPLY_HEADER_BYTES) };
        let areas = Box::new([
            Area { base: headers.cast().as_ptr(), len: size_of::<Headers>() },
            Area { base: payload.as_ptr(), len: buffer.len() - REPLY_HEADER_BYTES },
        ]);
        Self { queue, held_by_kernel: false, headers, buffer, areas }
    }

    /// Prepares the command that gives the entry to the kernel.
    fn give(&mut self, ring: &mut Ring, fd: RawFd, index: usize, operation: u32) -> io::Result<()> {
        let commit_id = if operation == REGISTER { 0 } else { self.headers().commit_id };
        let command = Command { flags: 0, commit_id, queue: self.queue, padding: [0; 6], unused: [0; 56] };
        let mut bytes = [0; 80];
        bytes.copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(fd), operation)
            .cmd(bytes)
            .addr(Some(self.areas.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        let entry = with_len(entry, self.areas.len() as u32);
        self.held_by_kernel = true;
        // SAFETY: the areas live as long as the kernel has them: they are freed only when `held_by_kernel` is false.
        unsafe { ring.submission().push(&entry) }.map_err(|_| io::Error::other("the ring is full"))
    }

    fn headers(&mut self) -> &mut Headers {
        assert!(!self.held_by_kernel);
        // SAFETY: allocated in `new`, freed in `drop`, and not the kernel's at the moment.
        unsafe { self.headers.as_mut() }
    }

    /// Both areas at once.
    fn areas(&mut self) -> (&mut Headers, &mut [u8]) {
        assert!(!self.held_by_kernel);
        // SAFETY: as in `headers`; two allocations, which do not overlap.
        unsafe { (self.headers.as_mut(), self.buffer.as_mut()) }
    }

    /// Answers the request that the kernel put into the areas, there. Tells how many bytes the longer payload of both
    /// has.
    fn answer(&mut self, dispatcher: &Dispatcher, spare: &mut Reply<'static>) -> usize {
        let (headers, buffer) = self.areas();
        let payload_bytes = headers.payload_bytes as usize;
        let answered = if payload_bytes == 0 {
            // Nothing lies where the reply goes, so it is put together right there.
            Request::parse_parts(&headers.in_out, &headers.op_in, &[]).map_err(|_| HALF).and_then(|request| {
                let mut reply = Reply::within(buffer);
                let answered = split(dispatcher.answer_always(request, &mut reply));
                if reply.is_within() { Ok(answered) } else { Err(TOO_LONG) }
            })
        } else {
            let payload = buffer[REPLY_HEADER_BYTES..].get(..payload_bytes).ok_or(Malformed);
            payload
                .and_then(|payload| Request::parse_parts(&headers.in_out, &headers.op_in, payload))
                .map(|request| dispatcher.answer_always(request, spare))
                .map_err(|Malformed| HALF)
                .and_then(|bytes| {
                    let (header, len) = split(bytes);
                    let room = buffer[REPLY_HEADER_BYTES..].get_mut(..len).ok_or(TOO_LONG)?;
                    room.copy_from_slice(&bytes[REPLY_HEADER_BYTES..]);
                    Ok((header, len))
                })
        };
        let (header, reply_bytes) = answered.unwrap_or_else(|wrong| {
            dispatcher.complain(wrong);
            split(spare.refuse(unique_of(&headers.in_out).unwrap_or_default(), Errno::IO))
        });
        headers.in_out[..REPLY_HEADER_BYTES].copy_from_slice(&header);
        headers.payload_bytes = reply_bytes as u32;
        payload_bytes.max(reply_bytes)
    }
}

/// Why a thread ends without its entries.
const NOT_RETURNED: &str = "the kernel did not give back a command of a connection that has ended";

/// Why a request is refused before it is looked at.
const HALF: &str = "the kernel sent half a request, which was refused";

/// Why a reply is not sent.
const TOO_LONG: &str =
    "a reply was longer than was agreed with the kernel, which was told of a failure instead";

/// A reply's header, and how long its payload is.
fn split(reply: &[u8]) -> ([u8; REPLY_HEADER_BYTES], usize) {
    let mut header = [0; REPLY_HEADER_BYTES];
    header.copy_from_slice(&reply[..REPLY_HEADER_BYTES]);
    (header, reply.len() - REPLY_HEADER_BYTES)
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.held_by_kernel {
            // A ring that is closed gives its commands up some time later. Until then the areas have to stay.
            return;
        }
        // SAFETY: both came out of a box in `new`, and no other owner has them.
        unsafe {
            drop(Box::from_raw(self.headers.as_ptr()));
            drop(Box::from_raw(self.buffer.as_ptr()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_as_numbers_and_ranges() {
        assert_eq!(parse_processors("0-3,5"), Some(vec![0, 1, 2, 3, 5]));
        assert_eq!(parse_processors("0"), Some(vec![0]));
        assert_eq!(parse_processors("none"), None);
    }

    #[test]
    fn every_queue_has_an_entry() {
        let plan = Plan::for_processors(&[0, 1, 2, 3], &[0, 2], 2).unwrap();
        let bound = |processor: u16| (Some(usize::from(processor)), vec![processor]);
        assert_eq!(plan.threads, [bound(0), bound(0), bound(2), bound(2), (None, vec![1, 3])]);
    }

    #[cfg(feature = "oracle")]
    #[test]
    fn the_wait_for_commands_that_are_not_given_back_ends_after_the_connection() {
        let (silent, _writer) = io::pipe().unwrap();
        let ending = Ending::new().unwrap();
        let mut ring = ring(2).unwrap();
        let never = opcode::PollAdd::new(types::Fd(silent.as_raw_fd()), u32::from(PollFlags::IN.bits()));
        // SAFETY: as in `Wait::new`.
        unsafe { ring.submission().push(&never.build().into()) }.unwrap();
        let mut wait = Wait::new(&mut ring, &ending).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| ending.tell());
            assert!(wait.wait(&ring).unwrap());
        });
        let done = ring.completion().next().unwrap();
        wait.note(&done, Duration::from_millis(10)).unwrap();
        assert!(!wait.wait(&ring).unwrap() && !wait.wait(&ring).unwrap());
    }

    #[test]
    fn a_submission_tells_how_many_areas_there_are() {
        let entry = opcode::UringCmd80::new(types::Fd(3), REGISTER).addr(Some(4096)).build();
        // SAFETY: as in `with_len`.
        let bytes: [u8; 128] = unsafe { mem::transmute(with_len(entry, 2)) };
        assert_eq!(bytes[16..28], [0, 16, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    }
}
