//! Boot studies: a root file system on flash is mounted and started twice, and its flash operations are split into phases.

mod definition;
mod figures;
mod plan;
mod result;
mod run;

pub use definition::{BootDefinition, BootStudy, Root};
pub use result::{BOOT_SCHEMA, Boot, BootGroup, BootResult, RootFs};
pub use run::run;
