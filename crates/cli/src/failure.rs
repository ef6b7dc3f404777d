//! The end of a command after an error: one line that names the thing and the next step, and an exit status.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use flashscope_output::OutputError;

/// An error for the user. Usage errors exit with 2, all others with 1.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// Lines below the message: the end of a board's console.
    below: Vec<String>,
    status: u8,
    /// The message was printed already.
    reported: bool,
}

/// Exit status of flashscope's own failure if the exit status is otherwise a command's (`record -- CMD`), as in `timeout` and `env`.
pub const OWN_FAILURE: u8 = 125;

impl Failure {
    pub fn usage(message: impl Into<String>) -> Self {
        Failure { message: message.into(), below: Vec::new(), status: 2, reported: false }
    }

    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), below: Vec::new(), status: 1, reported: false }
    }

    /// Ends a command that has printed its message.
    pub fn reported(status: u8) -> Self {
        Failure { message: String::new(), below: Vec::new(), status, reported: true }
    }

    /// The traced command ended with a status other than 0 and has printed the reason.
    pub fn of_command(status: i32) -> Self {
        Failure::reported(u8::try_from(status).unwrap_or(OWN_FAILURE))
    }

    /// The same failure with status 125, because 1 and 2 may be the command's.
    pub fn beside_a_command(self) -> Self {
        let status = if self.reported { self.status } else { OWN_FAILURE };
        Failure { status, ..self }
    }

    /// The same failure, with the user's name for a file that was put on the target under the name `staged`.
    pub fn naming(self, staged: &str, name: &str) -> Self {
        let end = format!("/{staged}: ");
        let Some(at) = self.message.find(&end) else { return self };
        let begin = self.message[..at].rfind(": ").map_or(0, |before| before + 2);
        let message = format!("{}{name}: {}", &self.message[..begin], &self.message[at + end.len()..]);
        Failure { message, ..self }
    }

    /// The same failure with more text, still one line.
    pub fn adding(self, more: &str) -> Self {
        Failure { message: format!("{}{more}", self.message), ..self }
    }

    /// The same failure with a failure that followed from it, in one line.
    pub fn and(self, then: &Failure) -> Self {
        self.adding(&format!("; {then}"))
    }

    /// Prints one line on standard error and the lines below it, without terminal control characters.
    pub fn tell(&self) {
        if !self.reported {
            flashscope_output::note_with(&self.message, &self.below);
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl From<flashscope_output::StdoutError> for Failure {
    fn from(error: flashscope_output::StdoutError) -> Self {
        match error {
            // The reader stopped early: `report t | head -1` is not a failure.
            flashscope_output::StdoutError::Closed => Failure::reported(0),
            error => Failure::new(error.to_string()),
        }
    }
}

/// The next step names the option for another file; empty: the file is an argument.
pub fn with_option(option: &str) -> impl Fn(OutputError) -> Failure {
    move |error| Failure::new(if option.is_empty() { error.to_string() } else { format!("{error} with {option}") })
}

/// Creates the directory that outputs go to; `next`: what to do if it cannot be created.
pub fn create_directory(directory: &Path, next: &str) -> Result<(), Failure> {
    flashscope_output::create_directories(directory).map_err(|error| match error {
        OutputError::Io { source, .. } => Failure::new(format!("{}: {source}; {next}", directory.display())),
        link => link.into(),
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

macro_rules! from_error {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::new(error.to_string())
            }
        })*
    };
}

from_error!(flashscope_trace::Error, OutputError);

impl From<flashscope_targets::Error> for Failure {
    fn from(error: flashscope_targets::Error) -> Self {
        let (status, below) = (if error.is_usage() { 2 } else { 1 }, error.console_tail().to_vec());
        Failure { status, below, ..Failure::new(error.to_string()) }
    }
}

impl From<flashscope_study::StudyError> for Failure {
    fn from(error: flashscope_study::StudyError) -> Self {
        match error {
            flashscope_study::StudyError::Target(error) => error.into(),
            error => Failure::new(error.to_string()),
        }
    }
}

impl From<flashscope_study::DefinitionError> for Failure {
    fn from(error: flashscope_study::DefinitionError) -> Self {
        Failure::usage(error.to_string())
    }
}
