//! What the page cache would have done: reads and faults go in, page-cache events come out. Nothing is read or printed here.
//!
//! The rules are those of five kernels ([`Kernel`]), each in a file of its own under `kernel/` that names the functions it
//! follows and the patch level they were read at. A [`Simulator`] holds the cache, within its budget, and what the kernel
//! keeps for every open file.
//!
//! Not modelled: large folios (JFFS2, UBIFS, YAFFS2 and squashfs have none on any of these kernels), congestion of control
//! groups, `MADV_HUGEPAGE`, errors of the device. Eviction is plain least-recently-used, not the kernel's two lists with their
//! workingset: it matters only where the budget is smaller than what is read.
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
pub use simulator::{FileNumber, Simulator};
pub use types::{Access, Cause, Choice, Kernel, MapAdvice, OpenId, PageEvent, PageStep, Settings};

/// Bytes of a page of the page cache, as on every board here.
pub const PAGE_BYTES: u64 = 4096;
