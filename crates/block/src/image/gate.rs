//! What an image may open besides itself.
//!
//! imago asks here before it opens a file that an image names. By then it has been decided that the image may name
//! files at all; what is left is to open them like any other file of ours, locked against writers, to keep backing
//! files read-only, and to end chains of backing files that have no end.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use imago::file::File;
use imago::format::builder::FormatDriverBuilder;
use imago::format::gate::ImplicitOpenGate;
use imago::{FormatAccess, StorageOpenOptions};

use super::ordered::{Order, Ordered};
use crate::{Access, FileDevice, FileOptions};

/// Longest chain of backing files; longer ones than a handful are unusual.
const MAX_CHAIN: u32 = 32;

/// Opens the files that an image names, and those that these name.
pub(super) struct Gate {
    options: FileOptions,
    depth: u32,
    opened: Rc<RefCell<Vec<FileDevice>>>,
    order: Arc<Order>,
}

impl Gate {
    /// For the files of an image whose own file was opened with `options`. What is opened is added to `opened`,
    /// which keeps the locks; what is written to it comes into `order`.
    pub(super) fn new(options: FileOptions, opened: Rc<RefCell<Vec<FileDevice>>>, order: Arc<Order>) -> Self {
        Self { options, depth: 0, opened, order }
    }
}

impl ImplicitOpenGate<Ordered> for Gate {
    fn open_format<F: FormatDriverBuilder<Ordered>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<Ordered>> {
        let depth = self.depth + 1;
        if depth > MAX_CHAIN {
            return Err(io::Error::other(format!("there are more than {MAX_CHAIN} backing files in a row")));
        }
        Ok(FormatAccess::new(builder.open(Self {
            options: self.options,
            depth,
            opened: Rc::clone(&self.opened),
            order: Order::new("a backing file".to_owned()),
        })?))
    }

    fn open_storage(&mut self, builder: StorageOpenOptions) -> io::Result<Ordered> {
        let path = builder.get_filename().ok_or(io::ErrorKind::NotFound)?.to_owned();
        let access =
            if self.depth == 0 && builder.get_writable() { self.options.access } else { Access::ReadOnly };
        let device =
            FileDevice::open(&path, FileOptions { access, ..self.options }).map_err(io::Error::other)?;
        let file = device.duplicate()?;
        self.opened.borrow_mut().push(device);
        let options = builder.write(access == Access::ReadWrite).direct(self.options.direct);
        Ok(Ordered::new(Arc::new(File::from_open_file(file, options)?), &self.order, false))
    }
}
