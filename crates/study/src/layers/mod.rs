//! Studies of layers: where the time of single calls goes, on storage of each kind.
//!
//! A kind of study of its own: its cells are calls that one recording holds, not runs that are compared with one another.

mod definition;
mod plan;
mod result;
mod run;

pub use definition::{LayersDefinition, LayersStudy, MeasuredStorage};
pub use result::{Boundary, LAYERS_SCHEMA, LayersGroup, LayersResult};
pub use run::run;
