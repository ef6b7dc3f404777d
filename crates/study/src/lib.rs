//! A question, its matrix of settings, its boards, and the published values beside ours.

mod result;

pub use result::*;
