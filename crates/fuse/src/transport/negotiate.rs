//! The first message: the kernel offers, the server chooses, and both keep to it.

use std::io;

use super::abi::{InitFlags, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, Opcode};
use super::device::{Device, Received};
use super::reply::Reply;
use super::request::Request;
use super::{REQUEST_BYTES, buffer};
use crate::{ListAttributes, MountOptions};

/// Reads ahead and writes behind that may be under way at once.
const BACKGROUND_REQUESTS: u16 = 64;

/// More background requests than this make the kernel hold back those that no caller waits for.
const CONGESTION: u16 = BACKGROUND_REQUESTS * 3 / 4;

const PAGE_BYTES: u32 = 4096;

/// Agrees with the kernel on how to talk, and tells what was agreed and the kernel's minor version. `rings` tells whether
/// there can be rings: once they are agreed on, the kernel waits for them. `time_step_ns` is the step in which times are
/// kept.
pub(super) fn negotiate(
    device: &Device,
    options: &MountOptions,
    rings: bool,
    time_step_ns: u32,
) -> io::Result<(InitFlags, u32)> {
    let mut buffer = buffer();
    let mut reply = Reply::new();
    loop {
        let len = match device.receive(&mut buffer)? {
            Received::Request(len) => len,
            Received::Nothing => continue,
            Received::Gone => {
                let gone = "the mount went before it was served";
                return Err(io::Error::new(io::ErrorKind::NotConnected, gone));
            }
        };
        let strange = || io::Error::other("the kernel's first message is not FUSE's");
        let mut request = Request::parse(&buffer[..len]).map_err(|_| strange())?;
        if request.opcode() != Opcode::INIT {
            return Err(strange());
        }
        let offer = offer(&mut request).ok_or_else(strange)?;
        if offer.major > MAJOR {
            // It comes again with a version that we know.
            reply.clear();
            reply.push(&InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() });
            device.send(reply.finish(request.unique()))?;
            continue;
        }
        if offer.major < MAJOR || offer.minor < MINOR_MIN {
            device.send(reply.refuse(request.unique(), rustix::io::Errno::PROTO))?;
            let (major, minor) = (offer.major, offer.minor);
            return Err(io::Error::other(format!(
                "the kernel speaks FUSE {major}.{minor}, which is too old: {MAJOR}.{MINOR_MIN} is needed"
            )));
        }
        let offered = InitFlags::from_bits_retain(u64::from(offer.flags) | u64::from(offer.flags2) << 32);
        let agreed = wanted(options, rings) & offered;
        let bits = (agreed | InitFlags::INIT_EXT).bits();
        reply.clear();
        reply.push(&InitOut {
            major: MAJOR,
            minor: MINOR,
            max_readahead: offer.max_readahead,
            flags: bits as u32,
            flags2: (bits >> 32) as u32,
            max_background: BACKGROUND_REQUESTS,
            congestion_threshold: CONGESTION,
            max_write: REQUEST_BYTES,
            max_pages: (REQUEST_BYTES / PAGE_BYTES) as u16,
            time_gran: time_step_ns,
            ..InitOut::default()
        });
        device.send(reply.finish(request.unique()))?;
        return Ok((agreed, offer.minor));
    }
}

/// The kernel's offer, as long as it has it.
fn offer(request: &mut Request<'_>) -> Option<InitIn> {
    let short: [u32; 4] = request.take().ok()?;
    let [major, minor, max_readahead, flags] = short;
    let flags2 = if InitFlags::from_bits_retain(flags.into()).contains(InitFlags::INIT_EXT) {
        request.take().ok()?
    } else {
        0
    };
    Some(InitIn { major, minor, max_readahead, flags, flags2, unused: [0; 11] })
}

/// What this mount would like to have.
fn wanted(options: &MountOptions, rings: bool) -> InitFlags {
    let mut wanted = InitFlags::ASYNC_READ
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::ASYNC_DIO
        | InitFlags::NO_OPEN_SUPPORT
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::MAX_PAGES
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::NO_OPENDIR_SUPPORT;
    wanted |= match options.list_attributes {
        ListAttributes::Always => InitFlags::DO_READDIRPLUS,
        ListAttributes::Auto => InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO,
        ListAttributes::Never => InitFlags::empty(),
    };
    // With ACLs the kernel checks permissions whether asked to or not.
    wanted.set(InitFlags::POSIX_ACL | InitFlags::ALLOW_IDMAP, options.default_permissions);
    if !options.read_only {
        wanted |= InitFlags::DONT_MASK | InitFlags::HANDLE_KILLPRIV_V2 | InitFlags::SETXATTR_EXT;
        // Past its cache the kernel writes without minding the times that it would keep with it.
        wanted.set(InitFlags::WRITEBACK_CACHE, options.writeback_cache && !options.direct_io);
    }
    // Files that are written past the kernel's cache, marked ones too, can be mapped all the same.
    wanted.set(InitFlags::DIRECT_IO_ALLOW_MMAP, options.direct_io || !options.read_only);
    wanted.set(InitFlags::OVER_IO_URING, rings);
    wanted
}
