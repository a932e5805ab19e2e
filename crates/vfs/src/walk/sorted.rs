//! The sorted walk: one descent from the start to the end.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::descent::{Descent, Order, Seen};
use super::{WalkEvent, WalkFlow, WalkOptions};
use crate::{Node, Vfs};

/// Walks; breaks when the visitor stopped it.
pub(super) fn walk(
    vfs: &Vfs,
    start: &Arc<Node>,
    options: WalkOptions,
    visitor: &mut dyn FnMut(WalkEvent<'_>) -> WalkFlow,
) -> ControlFlow<()> {
    let seen = Seen::new();
    let mut descent = Descent::new(vfs, &seen, options, Order::Sorted);
    descent.begin(start, visitor)?;
    while descent.step(visitor)? {}
    ControlFlow::Continue(())
}
