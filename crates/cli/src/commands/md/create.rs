//! `md create`.

use undercroft_md::{Array, ArrayOptions, CreateOptions};

use super::devices::NewDevices;
use super::wait::wait;
use super::{close, print};
use crate::failure::Failure;
use crate::image::md_failure;
use crate::plan::{Format, ImageSpec, NewArrayPlan};

/// Makes an array, and its redundancy right.
pub(super) fn run(plan: &NewArrayPlan, format: Format) -> Result<(), Failure> {
    let mut new = NewDevices::open(&plan.members, None)?;
    let options = CreateOptions {
        assume_clean: plan.options.assume_clean || new.are_all_new(),
        ..plan.options.clone()
    };
    let how = ArrayOptions { sync_bytes_per_second: plan.wait.bytes_per_second, ..ArrayOptions::default() };
    let array = Array::create(new.devices.clone(), &options, how).map_err(|error| md_failure(&error))?;
    new.keep_all();
    if plan.wait.wait {
        wait(&array)?;
    }
    let report = close(&array)?;
    let members: Vec<String> = plan.members.members.iter().map(ImageSpec::shown).collect();
    print(&report, &format!("md:{}", members.join(",")), format)
}
