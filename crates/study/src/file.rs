//! A study file of any kind.

use std::path::Path;

use crate::boot::BootStudy;
use crate::definition::{DefinitionError, Study, syntax};
use crate::layers::LayersStudy;
use crate::not_measured::NotMeasured;
use crate::runs::RunsStudy;

/// What a study file holds: its table says which.
#[derive(Clone, Debug)]
pub enum StudyFile {
    /// `[matrix]`: settings that are held against one another.
    Matrix(Box<Study>),
    /// `[layers]`: where the time of single calls goes.
    Layers(LayersStudy),
    /// `[runs]`: whole workloads.
    Runs(Box<RunsStudy>),
    /// `[[not_measured]]`: statements for the reproduction that nothing here can be held against.
    NotMeasured(NotMeasured),
    /// `[boot]`: what the flash does while a root file system boots.
    Boot(Box<BootStudy>),
}

impl StudyFile {
    pub fn read(path: &Path) -> Result<StudyFile, DefinitionError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| DefinitionError::Read { path: path.to_owned(), source })?;
        let name = path.display().to_string();
        let table: toml::Table = toml::from_str(&text).map_err(|error| syntax(&name, &text, &error))?;
        let is = |kind: &str| table.contains_key(kind);
        Ok(match () {
            () if is("layers") => StudyFile::Layers(LayersStudy::parse(&name, &text)?),
            () if is("runs") => StudyFile::Runs(Box::new(RunsStudy::parse(&name, &text)?)),
            () if is("boot") => StudyFile::Boot(Box::new(BootStudy::parse(&name, &text)?)),
            () if is("not_measured") => StudyFile::NotMeasured(NotMeasured::parse(&name, &text)?),
            () => StudyFile::Matrix(Box::new(Study::parse(&name, &text)?)),
        })
    }

    pub fn name(&self) -> &str {
        match self {
            StudyFile::Matrix(study) => &study.definition.name,
            StudyFile::Layers(study) => &study.definition.name,
            StudyFile::Runs(study) => &study.definition.name,
            StudyFile::NotMeasured(file) => &file.name,
            StudyFile::Boot(study) => &study.definition.name,
        }
    }
}
