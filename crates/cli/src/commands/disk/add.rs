//! `disk add`: a partition where there is room. It is filled first, so that the table never names one that is not whole.

use undercroft_block::partition::TableEditor;
use undercroft_disk::layout;

use super::create::{new_partition, refuse_fat, window};
use super::parts::{ALIGN_BYTES, Ids, Part};
use super::{content, list, table_failure};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::{AddPlan, Format};
use crate::text::human;

pub(super) fn run(plan: &AddPlan, format: Format) -> Result<(), Failure> {
    let target = image::open_to_overwrite(&plan.image)?;
    let device = &target.device;
    let mut editor =
        TableEditor::open(&**device).map_err(|error| table_failure(&plan.image, device, &error))?;
    let scheme = editor.table().scheme;
    let ids = Ids::new(plan.seed.clone());
    let count = editor.table().partitions.len() + 1;
    let mut part = Part::of(&plan.partition, count, scheme, plan.architecture.as_deref(), &ids)?;
    part.leave_out(&plan.image.path);
    refuse_fat(&part, editor.table().sector_bytes)?;
    let size = part.size()?;
    let gaps = editor.gaps(ALIGN_BYTES);
    let largest = gaps.iter().max_by_key(|gap| gap.end - gap.start);
    let fits = |gap: &&std::ops::Range<u64>| layout::place(&[size], (*gap).clone(), ALIGN_BYTES).is_ok();
    let gap = if part.takes_rest() { largest.filter(fits) } else { gaps.iter().find(fits) };
    let Some(gap) = gap else {
        let most = largest.map_or(0, |gap| gap.end - gap.start);
        let what = format!(
            "it needs {}, and the largest free part of the disk has {}",
            human::size(size.min_bytes),
            human::size(most)
        );
        return Err(part.failed(Kind::Usage, &what).advise("`undercroft disk resize` makes the disk larger"));
    };
    let places =
        layout::place(&[size], gap.clone(), ALIGN_BYTES).map_err(|error| Failure::of(Kind::Usage, &error))?;
    let [place] = &places[..] else { return Err(part.failed(Kind::Usage, &"it has no place")) };
    // What the table refuses is refused before anything is written.
    editor.add(&new_partition(&part, place, scheme)).map_err(|error| part.failed(Kind::Usage, &error))?;
    content::make(&part, &window(device, place)?, place.start, false)?;
    let failed = |error: undercroft_block::Error| Failure::of(Kind::Io, &error);
    device.flush().map_err(failed)?;
    editor.write(&**device).map_err(failed)?;
    target.close()?;
    list(&plan.image, format)
}
