//! Requests gathered by member: each member gets all of its part at once, slow members at the same time.
//!
//! Used by the levels without parity, and by the reads of the others. No locks.

use std::sync::Arc;

use undercroft_block::{self as block, Request};

use crate::fan_out::at_once;
use crate::member::{Member, Role};

/// What is asked of the members for some requests to the array.
#[derive(Debug, Default)]
pub(crate) struct Batches<'m, 'r> {
    tasks: Vec<Task<'m, 'r>>,
}

/// What is asked of one member.
#[derive(Debug)]
pub(crate) struct Task<'m, 'r> {
    pub(crate) role: Role,
    pub(crate) member: &'m Arc<Member>,
    /// On the member's data area, until they have been carried out: on its device.
    requests: Vec<Request<'r>>,
    /// Where in the array each of the requests begins.
    offsets: Vec<u64>,
    bytes: u64,
    pub(crate) outcome: block::Result<()>,
}

impl<'m, 'r> Batches<'m, 'r> {
    /// Adds a request for a member's data area; `offset` says where in the array it begins.
    pub(crate) fn push(&mut self, role: Role, member: &'m Arc<Member>, offset: u64, request: Request<'r>) {
        let known = self.tasks.iter().position(|task| Arc::ptr_eq(task.member, member));
        let at = known.unwrap_or(self.tasks.len());
        if known.is_none() {
            let (requests, offsets) = (Vec::new(), Vec::new());
            self.tasks.push(Task { role, member, requests, offsets, bytes: 0, outcome: Ok(()) });
        }
        let task = &mut self.tasks[at];
        task.bytes += request.len();
        task.requests.push(request);
        task.offsets.push(offset);
    }

    /// Carries all out, and gives back how each member did.
    pub(crate) fn run(self) -> Vec<Task<'m, 'r>> {
        self.run_by(Member::run_batch)
    }

    /// The same for reads that can be had elsewhere: a member that is late fails.
    pub(crate) fn run_soon(self) -> Vec<Task<'m, 'r>> {
        self.run_by(Member::run_batch_soon)
    }

    fn run_by(
        mut self,
        run: impl Fn(&Member, &mut [Request<'_>]) -> block::Result<()> + Sync,
    ) -> Vec<Task<'m, 'r>> {
        at_once(
            &mut self.tasks,
            |task| (&task.member.transfer_pace, task.bytes),
            |task| task.outcome = run(task.member, &mut task.requests),
        );
        self.tasks
    }
}

impl<'r> Task<'_, 'r> {
    /// The requests again, after they have been carried out or not, with their places in the array.
    pub(crate) fn into_requests(self) -> impl Iterator<Item = (u64, Request<'r>)> {
        self.offsets.into_iter().zip(self.requests)
    }

    /// What was written to the member's data area, once carried out.
    pub(crate) fn member_writes(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let data_offset = self.member.data_offset();
        self.requests.iter().filter_map(move |request| match request {
            Request::Write { offset, data } => Some((*offset - data_offset, *data)),
            Request::Read { .. } => None,
        })
    }
}
