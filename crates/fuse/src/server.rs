//! What the server answers, in the terms of the vfs: node ids come in, attributes and bytes go out.
//!
//! Called by [`transport`](crate::transport) from all event loops at once. Nothing here knows how requests and
//! replies are encoded. Nothing is kept for an open file: every request names its inode by node id, and the inode
//! of a request is alive because the kernel holds the id. What changes something is in `names`, `files` and
//! `attributes`.
//!
//! **Permissions** are the kernel's to check, which knows groups and capabilities; a request that passed its checks may
//! do what it asks. What the kernel does not know of is refused by the vfs: immutable files, names that are too long.
//!
//! Locks: none of its own, and none of the vfs is held across a call. The busy path, a request on a directory or
//! file that was used before, reads the lock-free node table and goes straight to the node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use undercroft_vfs::{Attr, Corruption, Error, Ino, Node, Result, StatFs, Vfs};

use crate::caller::Caller;
use crate::fault_log::{Fault, FaultLog, FaultSink};
use crate::liveness;
use crate::nodes::{NodeId, NodeTable, node_id};
use crate::pauses::Pauses;

/// Attributes of this prefix are for the administrator alone.
pub(crate) const TRUSTED: &[u8] = b"trusted.";

/// Serves one filesystem.
pub(crate) struct Server {
    vfs: Arc<Vfs>,
    root: Arc<Node>,
    nodes: Arc<NodeTable>,
    faults: Arc<FaultLog>,
    /// The first panic.
    defect: OnceLock<String>,
    /// Why the filesystem has stopped taking changes.
    failure: Arc<OnceLock<Arc<str>>>,
    /// What the root answers when it is asked for its server.
    told: OnceLock<String>,
    read_only: bool,
    access_times: bool,
    /// The kernel keeps the times of changes of regular files.
    kernel_keeps_times: AtomicBool,
    pauses: Pauses,
    /// The filesystem is being closed at the kernel's request, or has been.
    closing: AtomicBool,
    closed: OnceLock<()>,
}

/// An inode that was handed to the kernel and counted.
pub(crate) struct Entry {
    pub(crate) id: NodeId,
    pub(crate) attr: Attr,
}

impl Server {
    /// With `access_times`, reading brings them forward.
    pub(crate) fn new(vfs: Arc<Vfs>, faults: FaultSink, access_times: bool) -> Result<Self> {
        let read_only = vfs.filesystem().is_read_only();
        let root = vfs.root()?;
        if root.kind() != undercroft_vfs::FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let (nodes, faults) = (Arc::new(NodeTable::new()), Arc::new(FaultLog::new(faults)));
        let failure = Arc::default();
        vfs.filesystem().when_failed(note_failure(Arc::clone(&faults), Arc::clone(&failure)));
        Ok(Self {
            vfs,
            root,
            nodes,
            faults,
            defect: OnceLock::new(),
            failure,
            told: OnceLock::new(),
            read_only,
            access_times,
            kernel_keeps_times: AtomicBool::new(false),
            pauses: Pauses::new(),
            closing: AtomicBool::new(false),
            closed: OnceLock::new(),
        })
    }

    pub(crate) fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// Whether the filesystem takes no changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn nodes(&self) -> &Arc<NodeTable> {
        &self.nodes
    }

    /// The kernel caches what is written, and with it the times of changes of regular files: it shows its own and sends
    /// them. The server's own would replace them unseen, and show when the kernel has dropped the inode. Agreed on
    /// before the first request.
    pub(crate) fn let_kernel_keep_times(&self) {
        self.kernel_keeps_times.store(true, Ordering::Relaxed);
    }

    /// Counts an inode that a reply is going to name. Comes before its attributes are looked at.
    pub(crate) fn hand_out(&self, id: NodeId, node: &Arc<Node>) {
        if self.kernel_keeps_times.load(Ordering::Relaxed) {
            node.leave_times_to_cache();
        }
        self.nodes.acquire(id, self.held(node));
    }

    /// Says what the kernel cannot say.
    pub(crate) fn report(&self, error: &Error) {
        self.faults.report(error);
    }

    /// Says what is wrong with the server or its connection.
    pub(crate) fn complain(&self, what: &str) {
        self.faults.complain(&Fault::Server(what));
    }

    /// Keeps and says that an operation has panicked.
    pub(crate) fn note_defect(&self, what: String) {
        self.complain(&format!("a defect of this program, please report it: {what}"));
        let _ = self.defect.set(what);
    }

    /// The first panic.
    pub(crate) fn defect(&self) -> Option<&str> {
        self.defect.get().map(String::as_str)
    }

    /// From now on the root tells this as the attribute of its server.
    pub(crate) fn tell(&self, server: String) {
        let _ = self.told.set(server);
    }

    /// The id under which an inode that a directory names may be handed out.
    pub(crate) fn id_of(&self, ino: Ino) -> Option<NodeId> {
        node_id(ino, self.root.ino())
    }

    /// The inode of a request.
    pub(crate) fn node(&self, id: NodeId) -> Result<Arc<Node>> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        match self.nodes.held(id) {
            Some(node) => Ok(node),
            None => self.vfs.node(Ino(id.0)),
        }
    }

    /// The inode of a request that is likely to be followed by more of its kind.
    pub(crate) fn busy_node(&self, id: NodeId) -> Result<Arc<Node>> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(node) = self.nodes.held(id) {
            return Ok(node);
        }
        let node = self.vfs.node(Ino(id.0))?;
        self.nodes.keep(id, &node);
        Ok(node)
    }

    /// Looks a name up and counts what it found. The kernel asks for `.` when it finds an inode by a file handle
    /// that was kept (then `dir` need not be a directory), and for `..` when it goes up from there. The handle is a
    /// program's, and its number is checked.
    pub(crate) fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Entry> {
        if name == b"." && dir != NodeId::ROOT {
            self.vfs.filesystem().check_handle(Ino(dir.0))?;
        }
        let dir = self.busy_node(dir)?;
        let node = match self.vfs.lookup(&dir, name) {
            Err(Error::NotDirectory) if name == b"." => Arc::clone(&dir),
            answer => answer?,
        };
        let id = if (name == b"." || name == b"..") && node.ino() == self.root.ino() {
            NodeId::ROOT
        } else {
            let wrong = || bad_entry(&dir, name, &format!("inode {}, the root or reserved", node.ino()));
            self.id_of(node.ino()).ok_or_else(wrong)?
        };
        self.hand_out(id, &node);
        Ok(Entry { id, attr: node.attr() })
    }

    /// The handle that has to be held while the kernel knows the inode.
    pub(crate) fn held<'a>(&self, node: &'a Arc<Node>) -> Option<&'a Arc<Node>> {
        (!self.read_only).then_some(node)
    }

    /// Takes back `lookups` of what was handed out.
    pub(crate) fn forget(&self, id: NodeId, lookups: u64) {
        self.nodes.release(id, lookups);
    }

    pub(crate) fn attr(&self, id: NodeId) -> Result<Attr> {
        Ok(self.node(id)?.attr())
    }

    pub(crate) fn read_link(&self, id: NodeId) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        let target = node.read_link()?;
        self.note_access(&node);
        Ok(target)
    }

    /// A caller has read this. What the kernel answers out of its cache does not come here, and moves no time.
    pub(crate) fn note_access(&self, node: &Arc<Node>) {
        if self.access_times
            && let Err(error) = self.vfs.note_access(node)
        {
            // What was read is none the worse for it.
            self.report(&error);
        }
    }

    /// Fills `buf` from `offset` and returns the number of bytes; fewer only at the end of the file.
    pub(crate) fn read(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.busy_node(id)?;
        let len = self.vfs.open_node(&node)?.read_at(offset, buf)?;
        self.note_access(&node);
        Ok(len)
    }

    pub(crate) fn seek_data(&self, id: NodeId, offset: u64) -> Result<u64> {
        self.vfs.open_node(&self.node(id)?)?.seek_data(offset)
    }

    pub(crate) fn seek_hole(&self, id: NodeId, offset: u64) -> Result<u64> {
        self.vfs.open_node(&self.node(id)?)?.seek_hole(offset)
    }

    pub(crate) fn xattr(&self, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        if name == liveness::ATTRIBUTE.as_bytes() {
            let told = self.told.get().filter(|_| id == NodeId::ROOT).ok_or(Error::NoAttribute)?;
            return Ok(told.clone().into_bytes());
        }
        self.node(id)?.xattr(name)?.ok_or(Error::NoAttribute)
    }

    /// Makes everything durable that was done before.
    pub(crate) fn sync(&self) -> Result<()> {
        self.vfs.filesystem().sync()
    }

    pub(crate) fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Makes everything durable whenever changes pause for this long, until the [end](Pauses::end), or until the
    /// filesystem takes no more changes. Anything else that fails, such as for want of space, is tried again when more
    /// has changed.
    pub(crate) fn sync_in_pauses(&self, pause: Duration) {
        while self.pauses.wait(pause) {
            let Err(error) = self.sync() else { continue };
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            self.report(&error);
            if matches!(error, Error::TurnedReadOnly(_) | Error::ShutDown | Error::ReadOnly) {
                return;
            }
        }
    }

    /// Closes the filesystem, after the last request of a mount on a block device: the kernel gives the device to
    /// others as soon as this was answered, and nothing is written to it any more. How it went is told by the second
    /// closing.
    pub(crate) fn close(&self) {
        if !self.read_only {
            self.closing.store(true, Ordering::Release);
            self.pauses.end();
            self.nodes.let_go();
            self.close_once();
        }
    }

    /// Returns when the filesystem is closed, whichever thread does it.
    fn close_once(&self) {
        self.closed.get_or_init(|| {
            let _ = self.vfs.filesystem().close();
        });
    }

    /// Makes everything durable at the end.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let done = if self.closing.load(Ordering::Acquire) {
            self.close_once();
            self.vfs.filesystem().close()
        } else {
            self.sync()
        };
        done.inspect_err(|error| self.report(error))?;
        // What was refused after a failure is missing, however well the last sync went.
        self.failure.get().map_or(Ok(()), |cause| Err(Error::TurnedReadOnly(Arc::clone(cause))))
    }

    /// All names, each followed by a NUL. The kernel keeps `trusted.` values from ordinary users, but not the
    /// names.
    pub(crate) fn xattr_names(&self, caller: Caller, id: NodeId) -> Result<Vec<u8>> {
        let mut names = self.node(id)?.list_xattrs()?;
        if names.iter().any(|name| name.starts_with(TRUSTED)) && !caller.is_administrator() {
            names.retain(|name| !name.starts_with(TRUSTED));
        }
        let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list)
    }

    /// As it is at this moment; see [`statfs_after_deletions`](Self::statfs_after_deletions).
    pub(crate) fn statfs(&self) -> Result<StatFs> {
        self.vfs.filesystem().statfs()
    }
}

/// Keeps and says that the filesystem has stopped taking changes. Has nothing of the server and the filesystem: the
/// thread that calls it belongs to the filesystem, and would be the one to close it if it were the last to let go.
fn note_failure(
    faults: Arc<FaultLog>,
    failure: Arc<OnceLock<Arc<str>>>,
) -> Box<dyn Fn(&Error) + Send + Sync> {
    Box::new(move |error| {
        let cause = match error {
            Error::TurnedReadOnly(cause) => Arc::clone(cause),
            other => other.to_string().into(),
        };
        let _ = failure.set(cause);
        faults.say_always(&Fault::Filesystem(error));
    })
}

fn bad_entry(dir: &Node, name: &[u8], meaning: &str) -> Error {
    let detail = format!("\"{}\" stands for {meaning}", name.escape_ascii());
    Corruption { structure: "directory entry", ino: Some(dir.ino()), block: None, detail: detail.into() }
        .into()
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use undercroft_block::Device;
    use undercroft_sync::{Mutex, order};
    use undercroft_vfs::{FileSystem, Inode, Limits, VfsOptions};

    use super::*;
    use crate::memory::Memory;
    use crate::sample::{HELLO, sample};

    fn server() -> Server {
        Server::new(Vfs::new(Arc::new(sample(100, 0)), VfsOptions::default()), FaultSink::default(), false)
            .unwrap()
    }

    /// What the kernel does with a file handle that was kept while it forgot the inode.
    #[test]
    fn an_inode_is_found_again_by_its_id() {
        let server = server();
        let hello = server.lookup(NodeId::ROOT, b"hello").unwrap().id;
        server.forget(hello, 1);
        assert_eq!(server.nodes().len(), 0);
        let again = server.lookup(hello, b".").unwrap();
        assert_eq!((again.id, again.attr.size_bytes), (hello, HELLO.len() as u64));
        assert_eq!(server.nodes().len(), 1);
        assert!(matches!(server.lookup(hello, b".."), Err(Error::NotDirectory)));
        let many = server.lookup(NodeId::ROOT, b"many").unwrap().id;
        assert_eq!(server.lookup(many, b"..").unwrap().id, NodeId::ROOT);
        assert_eq!(server.lookup(NodeId::ROOT, b"..").unwrap().id, NodeId::ROOT);
        assert!(matches!(server.lookup(NodeId(12_345), b"."), Err(Error::Stale)));
    }

    #[test]
    fn an_entry_that_found_no_room_is_not_counted() {
        let server = server();
        let many = server.lookup(NodeId::ROOT, b"many").unwrap().id;
        let mut given = 0;
        let mut next = 0;
        let full_at_the_tenth = &mut |entry: &crate::directory::Listed<'_>, _: &_| {
            if given == 10 {
                return ControlFlow::Break(());
            }
            given += 1;
            next = entry.next;
            ControlFlow::Continue(())
        };
        server.list_with_details(many, 0, full_at_the_tenth).unwrap();
        // The directory itself, and eight of its files after the dots.
        assert_eq!(server.nodes().len(), 1 + 8);
        let mut rest = 0;
        let count_rest = &mut |_: &crate::directory::Listed<'_>, _: &_| {
            rest += 1;
            ControlFlow::Continue(())
        };
        server.list_with_details(many, next, count_rest).unwrap();
        assert_eq!((rest, server.nodes().len()), (92, 101));
    }

    #[test]
    fn a_busy_inode_is_kept_until_the_kernel_forgets_it() {
        let server = server();
        let hello = server.lookup(NodeId::ROOT, b"hello").unwrap().id;
        assert!(server.nodes().held(hello).is_none());
        let mut buf = [0; 100];
        assert_eq!(server.read(hello, 0, &mut buf).unwrap(), HELLO.len());
        assert!(server.nodes().held(hello).is_some());
        server.forget(hello, 1);
        assert!(server.nodes().held(hello).is_none());
    }

    #[test]
    fn what_was_never_given_back_is_let_go_at_the_end() {
        let server = server();
        let hello = server.lookup(NodeId::ROOT, b"hello").unwrap().id;
        server.read(hello, 0, &mut [0; 100]).unwrap();
        server.nodes().let_go();
        assert!(server.nodes().held(hello).is_none());
    }

    /// A filesystem of which a test decides some answers.
    struct Scripted {
        base: Memory,
        /// No inode, although it can be read.
        not_an_inode: Option<Ino>,
        syncs: Option<Syncs>,
    }

    struct Syncs {
        /// Is told each sync that begins.
        called: Sender<()>,
        /// What each of them answers.
        answers: Mutex<Receiver<Result<()>>>,
    }

    impl FileSystem for Scripted {
        fn kind(&self) -> &'static str {
            self.base.kind()
        }

        fn root(&self) -> Ino {
            self.base.root()
        }

        fn read_inode(&self, ino: Ino) -> Result<Arc<dyn Inode>> {
            self.base.read_inode(ino)
        }

        fn check_handle(&self, ino: Ino) -> Result<()> {
            if self.not_an_inode == Some(ino) { Err(Error::Stale) } else { Ok(()) }
        }

        fn data_device(&self) -> Option<&Device> {
            self.base.data_device()
        }

        fn statfs(&self) -> Result<StatFs> {
            self.base.statfs()
        }

        fn limits(&self) -> Limits {
            self.base.limits()
        }

        fn sync(&self) -> Result<()> {
            let Some(Syncs { called, answers }) = &self.syncs else { return self.base.sync() };
            called.send(()).unwrap();
            answers.lock().recv().unwrap()
        }
    }

    #[test]
    fn a_file_handle_is_checked_before_its_inode_is_read() {
        let hello = server().lookup(NodeId::ROOT, b"hello").unwrap().id;
        let forged = Scripted { base: sample(100, 0), not_an_inode: Some(Ino(hello.0)), syncs: None };
        let vfs = Vfs::new(Arc::new(forged), VfsOptions::default());
        let server = Server::new(vfs, FaultSink::new(|_| ()), false).unwrap();
        assert!(matches!(server.lookup(hello, b"."), Err(Error::Stale)));
        assert_eq!(server.lookup(NodeId::ROOT, b"hello").unwrap().id, hello);
        assert!(server.lookup(NodeId::ROOT, b".").is_ok());
    }

    #[test]
    fn changes_are_made_durable_until_the_filesystem_takes_none() {
        let (called, calls) = channel();
        let (answer, answers) = channel();
        let answers = Mutex::new(&order::DEVICE, answers);
        let synced =
            Scripted { base: sample(1, 0), not_an_inode: None, syncs: Some(Syncs { called, answers }) };
        let vfs = Vfs::new(Arc::new(synced), VfsOptions::default());
        let server = Server::new(vfs, FaultSink::new(|_| ()), false).unwrap();
        thread::scope(|scope| {
            let syncing = scope.spawn(|| server.sync_in_pauses(Duration::from_millis(1)));
            for outcome in [Err(Error::NoSpace), Ok(()), Err(Error::NoSpace), Err(Error::ShutDown)] {
                server.pauses().note_change();
                calls.recv_timeout(Duration::from_secs(60)).unwrap();
                // One change is one attempt: what is not answered yet would block the next.
                answer.send(outcome).unwrap();
            }
            syncing.join().unwrap();
        });
        assert!(calls.try_recv().is_err(), "tried more often than something changed");
    }
}
