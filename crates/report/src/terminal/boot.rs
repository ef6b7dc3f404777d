//! A study of booting on a terminal.

use super::published::published;
use super::table::{Table, paragraph};
use super::{Style, rows};
use crate::boot_view::{flashed, heading, phases};
use crate::text::visible;
use flashscope_study::boot::BootResult;

/// The whole text; ends in a newline.
pub fn boot_study(result: &BootResult, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let mut out = super::head(&result.header, width);
    for group in &result.groups {
        out += &style.heading(&visible(&group.id));
        let mut table = Table::new("tt");
        let inputs = &group.inputs;
        table.row(["kernel", &*visible(&format!("{} ({})", inputs.kernel_release, inputs.kernel_package))]);
        table.row(["board", &*visible(&format!("{}, {}", inputs.board, inputs.qemu))]);
        table.row(["chip", &*visible(&group.chip)]);
        table.row(["root", &*visible(&group.root.packages.join(", "))]);
        out += &table.render(width);
        out += &paragraph(&visible(&flashed(group)), width, 2, 2);
        for boot in &group.boots {
            let table = rows(&phases(&boot.phases, 0, Some(boot.prompt_ns)), width);
            out += &style.section(&visible(&heading(group, boot)), &table);
        }
        out.push('\n');
        out += &super::lost(&group.losses, width);
    }
    out + &published(&result.published, style)
}
