//! Names of calls and layers, shared by all kinds of reports.

use flashscope_analysis::layers::{Layer, Operation};

pub fn call_name(call: Operation) -> &'static str {
    match call {
        Operation::Read => "read",
        Operation::Write => "write without sync",
        Operation::Sync => "sync without write",
        Operation::WriteSync => "write + sync",
    }
}

/// The usual name of a layer.
pub fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Call => "system call",
        Layer::Vfs => "VFS",
        Layer::PageCache => "page cache",
        Layer::FileSystem => "file system",
        Layer::Ubi => "UBI",
        Layer::Block => "block",
        Layer::Mtd => "MTD",
        Layer::Driver => "driver",
        Layer::Device => "device",
        Layer::Interrupt => "interrupt",
        Layer::OtherTasks => "other tasks",
    }
}
