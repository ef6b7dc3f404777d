//! The bodies of all targets. A target calls one.

#![allow(dead_code, reason = "a target calls one body")]

#[path = "commands.rs"]
pub mod commands;
#[path = "structured.rs"]
mod structured;
#[path = "targets.rs"]
pub mod targets;
