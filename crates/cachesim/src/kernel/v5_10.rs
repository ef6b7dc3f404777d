//! Linux 5.10: `ondemand_readahead`, `page_cache_sync_ra`, `page_cache_async_ra`, `force_page_cache_ra` (mm/readahead.c) decide
//! as 6.1's do (6.1 added folios' orders and never shrinks a window that was expected; neither shows with pages). The read
//! itself differs: `generic_file_buffered_read` (mm/filemap.c) goes page by page and notes where it was differently.

use std::ops::Range;

use super::{Rules, read_by_page, v6_1};
use crate::mapping::Mapping;

pub const SOURCE: &str = "mm/readahead.c, mm/filemap.c of Linux 5.10.223 (Debian 5.10.223-1)";

pub struct V5_10;

impl Rules for V5_10 {
    fn sync(&self, m: &mut Mapping, index: u64, pages: u64) {
        v6_1::sync(m, index, pages);
    }

    fn on_mark(&self, m: &mut Mapping, index: u64, pages: u64) {
        v6_1::on_mark(m, index, pages);
    }

    fn read(&self, m: &mut Mapping, bytes: Range<u64>) {
        read_by_page(self, m, bytes);
    }
}
