//! Studies of booting: a root file system on flash, mounted and started twice, and the phases that its flash operations show.

mod definition;
mod figures;
mod plan;
mod result;
mod run;

pub use definition::{BootDefinition, BootStudy, Root};
pub use result::{BOOT_SCHEMA, Boot, BootGroup, BootResult, RootFs};
pub use run::run;
