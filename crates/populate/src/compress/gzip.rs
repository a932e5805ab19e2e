//! gzip's members, one after the other, and the zeros that fill the last block of a tape behind them.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// All members of a stream.
pub(super) struct Members<R> {
    /// The member that is being read; `None` behind the last.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    pub(super) fn of(stream: R) -> Self {
        Self { member: Some(GzDecoder::new(stream)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            let len = member.read(buf)?;
            if len > 0 {
                return Ok(len);
            }
            let Some(mut stream) = self.member.take().map(GzDecoder::into_inner) else { break };
            self.member = follows(&mut stream)?.then(|| GzDecoder::new(stream));
        }
        Ok(0)
    }
}

/// Whether another member follows, and not only zeros.
fn follows(stream: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let ahead = stream.fill_buf()?;
        match ahead.iter().position(|&byte| byte != 0) {
            Some(at) => {
                let is_member = ahead[at] == 0x1f;
                stream.consume(at);
                return if is_member { Ok(true) } else { Err(garbage()) };
            }
            None if ahead.is_empty() => return Ok(false),
            None => {
                let zeros = ahead.len();
                stream.consume(zeros);
            }
        }
    }
}

fn garbage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "there is something else behind the last member")
}
