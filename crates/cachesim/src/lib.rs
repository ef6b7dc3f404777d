//! A model of the page cache: reads and faults go in, page-cache events come out. It reads no files and prints nothing.
//!
//! It follows five kernels ([`Kernel`]). Each has a file under `kernel/` that names the kernel functions it follows and the
//! patch level they were read at. A [`Simulator`] holds the cache, within its budget, and the read-ahead state of every open
//! file.
//!
//! Not modelled: large folios (JFFS2, UBIFS, YAFFS2 and squashfs have none on any of these kernels), congestion of control
//! groups, `MADV_HUGEPAGE`, errors of the device. Eviction is plain least-recently-used, not the kernel's two lists with their
//! workingset: it matters only where the budget is smaller than the pages read.
//!
//! ```
//! use flashscope_cachesim::{Access, Kernel, OpenId, Settings, Simulator};
//! use flashscope_trace::{Device, FileId};
//!
//! let file = FileId::on(Device(0x1f00000), 12);
//! let mut simulator = Simulator::new(Kernel::V6_1, Settings { readahead_pages: 32, ..Settings::default() });
//! simulator.set_size(file, 5 << 20);
//! let mut read = 0;
//! simulator.apply(file, OpenId(7), Access::Read { offset: 0, length: 4096 }, &mut |event| read += u64::from(event.is_read()));
//! assert_eq!(read, 4, "the initial window of one page is four");
//! ```

mod cache;
mod kernel;
mod mapping;
mod simulator;
mod types;

pub use mapping::ubifs::{BulkReads, LARGEST_NODE, NodePlaces, NodeRuns};
pub use simulator::Simulator;
pub use types::{Access, Cause, Choice, Kernel, MapAdvice, OpenId, PageEvent, PageStep, Settings};

/// Bytes of a page of the page cache on every supported board.
pub const PAGE_BYTES: u64 = 4096;
