//! What each page and each read of flash took in the trace. A workload collects it, and `cost` applies it.

pub mod flash_time;
pub mod index;
pub mod pages;
pub mod ubifs;
