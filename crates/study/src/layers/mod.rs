//! Layers studies: time of single calls by layer, for each kind of storage.
//!
//! Its cells are calls in one recording, not runs that are compared with each other.

mod definition;
mod plan;
mod result;
mod run;

pub use definition::{LayersDefinition, LayersStudy, MeasuredStorage};
pub use result::{Boundary, LAYERS_SCHEMA, LayersGroup, LayersResult};
pub use run::run;
