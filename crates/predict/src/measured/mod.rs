//! The measured cost of each page and of each flash read. A workload collects them, and `cost` applies them.

pub mod flash_time;
pub mod index;
pub mod pages;
pub mod ubifs;
