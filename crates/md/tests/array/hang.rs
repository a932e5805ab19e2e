//! Members that do not answer: readers go elsewhere, writers wait for the limit and no longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use undercroft_block::{Access, BlockDevice, Device, Request, Result};
use undercroft_md::{Array, ArrayOptions, Duty, Level};
use undercroft_sync::WaitQueue;

use super::support::{LONG, assert_same, blank, check, fill, modest, open, pattern, read_all, small};

const DATA: u64 = 256 << 10;
const REDUNDANT: [(Level, usize); 5] =
    [(Level::Raid1, 3), (Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];
/// No test waits for it.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// A device on a server that can be stopped.
#[derive(Debug)]
struct Served {
    base: Device,
    is_stopped: AtomicBool,
    /// Calls that wait for the server.
    waiting: AtomicUsize,
    changed: WaitQueue,
}

impl Served {
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    fn go_on(&self) {
        self.is_stopped.store(false, Ordering::SeqCst);
        self.changed.wake_all();
    }

    fn until_a_call_waits(&self) {
        assert!(self.changed.wait_timeout(LONG, || self.waiting.load(Ordering::SeqCst) > 0), "a call comes");
    }

    fn until_no_call_waits(&self) {
        assert!(
            self.changed.wait_timeout(LONG, || self.waiting.load(Ordering::SeqCst) == 0),
            "all are answered"
        );
    }

    fn answer<T>(&self, call: impl FnOnce() -> T) -> T {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.changed.wake_all();
        self.changed.wait(|| !self.is_stopped.load(Ordering::SeqCst));
        let result = call();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.changed.wake_all();
        result
    }
}

impl BlockDevice for Served {
    fn name(&self) -> String {
        "served device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn may_hang(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.answer(|| self.base.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.answer(|| self.base.write_at(offset, data))
    }

    fn flush(&self) -> Result<()> {
        self.answer(|| self.base.flush())
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        self.answer(|| self.base.run_batch(batch))
    }
}

fn served(count: usize) -> (Vec<Arc<Served>>, Vec<Device>) {
    let served: Vec<_> = blank(count, DATA)
        .into_iter()
        .map(|base| {
            Arc::new(Served {
                base,
                is_stopped: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                changed: WaitQueue::new(),
            })
        })
        .collect();
    let devices = served.iter().map(|one| Arc::clone(one) as Device).collect();
    (served, devices)
}

fn create(devices: &[Device], level: Level, member_timeout: Duration) -> Array {
    let options = ArrayOptions { member_timeout: Some(member_timeout), ..modest() };
    Array::create(devices.to_vec(), &small(level), options).expect("the array is made")
}

fn faulty(array: &Array) -> Vec<u32> {
    let members = array.status().members;
    members.iter().filter(|member| member.duty == Duty::Faulty).map(|member| member.number).collect()
}

/// The limit is far away, so whatever ends has not waited for the member.
#[test]
fn reads_go_elsewhere_while_a_member_does_not_answer() {
    for (level, members) in REDUNDANT {
        let (served, devices) = served(members);
        let array = create(&devices, level, NEVER);
        let content = fill(&array, 1);
        served[1].stop();
        // In one request, and in small ones.
        assert_same(&read_all(&array), &content);
        for (index, chunk) in content.chunks(5000).enumerate() {
            let mut found = vec![0; chunk.len()];
            array.read_at(index as u64 * 5000, &mut found).unwrap();
            assert_same(&found, chunk);
        }
        served[1].until_a_call_waits();
        served[1].go_on();
        served[1].until_no_call_waits();
        assert_eq!(faulty(&array), [], "{level:?}: a member that answers late is not lost");
        array.write_at(4096, &content[4096..9000]).unwrap();
        assert_eq!(check(&array), 0, "{level:?}");
    }
}

#[test]
fn a_member_that_does_not_answer_a_write_within_the_limit_is_left_out() {
    for (level, members) in REDUNDANT {
        let (served, devices) = served(members);
        let array = create(&devices, level, Duration::from_millis(300));
        let mut content = fill(&array, 1);
        served[1].stop();
        for (round, chunk) in content.chunks_mut(40_000).enumerate() {
            chunk.copy_from_slice(&pattern(round as u64 + 2, chunk.len()));
            array.write_at(round as u64 * 40_000, chunk).unwrap();
        }
        array.flush().unwrap();
        assert_eq!(faulty(&array), [1], "{level:?}");
        assert_same(&read_all(&array), &content);
        // What it answers now comes too late.
        served[1].go_on();
        served[1].until_no_call_waits();
        assert_same(&read_all(&array), &content);
        array.close().unwrap();
        drop(array);
        let array = open(&devices);
        assert_eq!(array.status().degraded, 1, "{level:?}: that it was lost is recorded");
        assert_same(&read_all(&array), &content);
    }
}

/// No request waits for the member, and still it is left out when the limit is over.
#[test]
fn a_member_that_does_not_answer_a_read_within_the_limit_is_left_out() {
    let (served, devices) = served(2);
    let array = create(&devices, Level::Raid1, Duration::from_millis(1500));
    let content = fill(&array, 1);
    // The array is clean, so nothing is flushed.
    while array.status().is_active {
        thread::yield_now();
    }
    served[0].stop();
    served[1].stop();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&array));
        served[0].until_a_call_waits();
        served[1].go_on();
        assert_same(&reader.join().unwrap(), &content);
    });
    while faulty(&array) != [0] {
        thread::sleep(Duration::from_millis(10));
    }
    served[0].go_on();
    array.write_at(0, &content[..4096]).unwrap();
    assert_same(&read_all(&array), &content);
}

#[test]
fn what_can_be_had_nowhere_else_is_waited_for() {
    for level in [Level::Raid0, Level::Linear] {
        let (served, devices) = served(2);
        let array = create(&devices, level, NEVER);
        let content = fill(&array, 1);
        served[1].stop();
        thread::scope(|scope| {
            let reader = scope.spawn(|| read_all(&array));
            served[1].until_a_call_waits();
            served[1].go_on();
            assert_same(&reader.join().unwrap(), &content);
        });
    }
}

#[test]
fn what_can_be_had_nowhere_else_is_an_error_after_the_limit() {
    let (served, devices) = served(2);
    let array = create(&devices, Level::Raid0, Duration::from_millis(200));
    fill(&array, 1);
    served[1].stop();
    let error = array.read_at(0, &mut vec![0; 64 << 10]).unwrap_err();
    let cause = format!("{:?}", std::error::Error::source(&error).map(ToString::to_string));
    assert!(cause.contains("no answer for 200 ms (member_timeout)"), "{cause}");
    served[1].go_on();
}

/// Two of four: what one of them holds is rebuilt from neither.
#[test]
fn members_that_are_needed_are_waited_for_although_they_are_late() {
    let (served, devices) = served(4);
    let array = create(&devices, Level::Raid5, NEVER);
    let content = fill(&array, 1);
    served[0].stop();
    served[1].stop();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&array));
        // Once in vain for a reader that hoped to read elsewhere, and once more to wait.
        while served[..2].iter().all(|one| one.waiting.load(Ordering::SeqCst) < 2) {
            thread::yield_now();
        }
        served[0].go_on();
        served[1].go_on();
        assert_same(&reader.join().unwrap(), &content);
    });
    assert_eq!(faulty(&array), []);
}
