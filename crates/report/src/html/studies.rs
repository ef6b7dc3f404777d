//! Parts that the pages of all kinds of studies share.

use super::facts;
use super::page::{self, Page};
use crate::text::escape;
use flashscope_analysis::LossCount;
use flashscope_study::{Header, Inputs};

pub fn open(header: &Header, contents: &[(&str, &str)]) -> Page {
    let Header { title, question, clock, .. } = header;
    Page::new(&page::Header { title, question, clock, contents })
}

pub fn finish(page: Page, header: &Header) -> String {
    page.finish(&format!("Written by flashscope {}; schema {}.", header.flashscope, header.schema))
}

/// A boot's section: heading, `tables`, and a box with its facts and losses.
pub fn boot(id: &str, tables: &str, known: Vec<(&str, String)>, lost: &[LossCount]) -> String {
    let lost = super::lost(lost);
    format!("<h3>{}</h3>\n{tables}<div class=\"box\">\n{}<h3>Losses</h3>\n{lost}</div>\n", escape(id), facts(known))
}

/// Kernel and board of a boot.
pub fn measured_on(inputs: &Inputs) -> [(&'static str, String); 2] {
    [
        ("kernel", format!("{} ({})", inputs.kernel_release, inputs.kernel_package)),
        ("board", format!("{}, {}", inputs.board, inputs.qemu)),
    ]
}
