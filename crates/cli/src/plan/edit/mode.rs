//! Modes as chmod has them.

use undercroft_populate::ModeChange;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// # Errors
/// [`Kind::Usage`].
pub(crate) fn parse(typed: &str) -> Result<ModeChange, Failure> {
    typed.parse().map_err(|_| {
        Failure::new(Kind::Usage, format!("{} is no mode", safe(typed.as_bytes())))
            .advise("write it as 755, u+x or u=rwX,go=rX")
    })
}
