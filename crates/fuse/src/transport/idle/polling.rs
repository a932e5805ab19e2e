//! Keeping idle processors from halting while requests come one after the other.
//!
//! A blocked client idles its processor, and so does a server that waits for the next request. In a virtual machine an
//! idle processor halts, and waking it goes through the host: 30 µs and more, where a polling one is reached in 2. A
//! program that asks again as soon as it was answered then spends most of its time waking processors.
//!
//! Linux lets root limit the latency with which processors come back from idling (PM QoS): a process that holds
//! `/dev/cpu_dma_latency` open and has written 0 to it keeps all of them polling. That costs what a busy processor costs,
//! so the server asks for it only while requests come quickly, and takes it back soon after the last one. The kernel takes
//! it back when the descriptor is closed, also from a server that was killed.
//!
//! Source: `Documentation/power/pm_qos_interface.rst` of Linux.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// The latency, in µs, at which no processor halts.
const POLLING: i32 = 0;

/// What `PM_QOS_CPU_LATENCY_DEFAULT_VALUE` is to the kernel: any.
const ANY: i32 = 2_000_000_000;

/// A loop looks at the clock once in so many requests.
const STRIDE: u32 = 8;

/// So many requests within this are quick. To wake a processor for each would take a tenth of that time.
const QUICK: Duration = Duration::from_millis(4);

/// Without such a stride of any loop within this, processors may halt again.
const REST: Duration = Duration::from_millis(20);

/// The mount's wish that processors do not halt.
#[derive(Debug)]
pub(in crate::transport) struct Latency {
    /// Strides that were quick.
    strides: AtomicU64,
    /// Whether the keeper keeps processors awake, or is being told to.
    wanted: AtomicBool,
    /// No more requests come, or the kernel did not take the wish.
    ended: AtomicBool,
    /// The thread that says so to the kernel, so that no request has to wait for that. Known before any event loop
    /// starts.
    keeper: OnceLock<Thread>,
}

/// Ends the keeper when dropped.
#[derive(Debug)]
pub(in crate::transport) struct Keeping<'a>(&'a Latency);

/// How quickly one event loop gets its requests.
#[derive(Debug)]
pub(in crate::transport) struct Pace<'a> {
    latency: Option<&'a Latency>,
    requests: u32,
    since: Instant,
}

/// Opens what the wish is written to: `None` where the kernel does not allow it.
pub(in crate::transport) fn open_request() -> Option<File> {
    OpenOptions::new().write(true).open(DEVICE).ok()
}

impl Latency {
    pub(in crate::transport) fn new() -> Self {
        Self {
            strides: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            keeper: OnceLock::new(),
        }
    }

    /// Starts the keeper, which writes to `request`. If the kernel does not take the wish it ends, and nothing depends
    /// on that.
    pub(in crate::transport) fn start<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        request: impl Write + Send + 'scope,
    ) -> io::Result<Keeping<'scope>> {
        let keep = move || {
            if self.keep(request).is_err() {
                self.ended.store(true, Ordering::Relaxed);
            }
        };
        let keeper = thread::Builder::new().name("fuse-latency".to_owned()).spawn_scoped(scope, keep)?;
        let _ = self.keeper.set(keeper.thread().clone());
        Ok(Keeping(self))
    }

    fn keep(&self, mut request: impl Write) -> io::Result<()> {
        while !self.has_ended() {
            if !self.wanted.load(Ordering::Relaxed) {
                thread::park();
                continue;
            }
            request.write_all(&POLLING.to_ne_bytes())?;
            self.wait_for_rest();
            // First, so that a thread that is quick from here on wakes the keeper again.
            self.wanted.store(false, Ordering::Relaxed);
            request.write_all(&ANY.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Returns when no loop has been quick for a while.
    fn wait_for_rest(&self) {
        let mut seen = None;
        loop {
            let strides = self.strides.load(Ordering::Relaxed);
            if seen == Some(strides) || self.has_ended() {
                return;
            }
            seen = Some(strides);
            let until = Instant::now() + REST;
            // It may have been woken for what it knows already.
            while let left = until.saturating_duration_since(Instant::now())
                && !left.is_zero()
                && !self.has_ended()
            {
                thread::park_timeout(left);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn note_stride(&self) {
        self.strides.fetch_add(1, Ordering::Relaxed);
        if !self.wanted.load(Ordering::Relaxed) && !self.wanted.swap(true, Ordering::Relaxed) {
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

impl<'a> Keeping<'a> {
    pub(in crate::transport) fn latency(&self) -> &'a Latency {
        self.0
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
        self.0.wake_keeper();
    }
}

impl<'a> Pace<'a> {
    /// With `None` nothing is noted.
    pub(in crate::transport) fn new(latency: Option<&'a Latency>) -> Self {
        Self { latency, requests: 0, since: Instant::now() }
    }

    /// Whether idle processors poll now.
    pub(in crate::transport) fn is_polling(&self) -> bool {
        self.latency.is_some_and(|latency| latency.wanted.load(Ordering::Relaxed) && !latency.has_ended())
    }

    /// A request has come.
    pub(in crate::transport) fn note_request(&mut self) {
        let Some(latency) = self.latency else { return };
        self.requests += 1;
        if self.requests < STRIDE {
            return;
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.since) < QUICK {
            latency.note_stride();
        }
        self.requests = 0;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Stands in for the kernel's device: tells what was written.
    struct Told(mpsc::Sender<i32>);

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(i32::from_ne_bytes(bytes.try_into().unwrap())).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn processors_poll_from_the_first_quick_requests_until_there_are_none() {
        let latency = Latency::new();
        let (sender, told) = mpsc::channel();
        thread::scope(|scope| {
            let _keeping = latency.start(scope, Told(sender)).unwrap();
            for _ in 0..3 {
                let mut pace = Pace::new(Some(&latency));
                let end = Instant::now() + LONG;
                while Instant::now() < end && told.try_recv() != Ok(POLLING) {
                    pace.note_request();
                }
                assert_eq!(told.recv_timeout(LONG), Ok(ANY));
            }
        });
        // A loop that was kept from asking for a while has been at rest meanwhile.
        let rest: Vec<i32> = told.iter().collect();
        assert!(rest.chunks(2).all(|pair| pair == [POLLING, ANY]), "{rest:?}");
    }

    #[test]
    fn slow_requests_do_not_count() {
        let latency = Latency::new();
        let mut pace = Pace::new(Some(&latency));
        for _ in 0..2 * STRIDE {
            pace.since = Instant::now().checked_sub(QUICK).unwrap();
            pace.note_request();
        }
        assert_eq!(latency.strides.into_inner(), 0);
        assert!(!latency.wanted.into_inner());
    }

    #[test]
    fn polling_ends_even_after_fast_requests() {
        let latency = Latency::new();
        let (sender, told) = mpsc::channel();
        thread::scope(|scope| {
            let keeping = latency.start(scope, Told(sender)).unwrap();
            keeping.latency().note_stride();
            assert_eq!(told.recv_timeout(LONG), Ok(POLLING));
            drop(keeping);
            assert_eq!(told.recv_timeout(LONG), Ok(ANY));
        });
    }

    /// Refuses, as the kernel may.
    struct Refuses;

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::PermissionDenied))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn polling_is_off_where_the_kernel_refuses_it() {
        let latency = Latency::new();
        thread::scope(|scope| {
            let _keeping = latency.start(scope, Refuses).unwrap();
            let pace = Pace::new(Some(&latency));
            latency.note_stride();
            let end = Instant::now() + LONG;
            while pace.is_polling() && Instant::now() < end {
                thread::yield_now();
            }
            latency.note_stride();
            assert!(!pace.is_polling());
        });
    }
}
