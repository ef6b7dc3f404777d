//! Labels of tasks in tables: `tar (500)`; for the second task with this number and name `tar (500, 2nd)`.

use crate::ids::TaskId;

/// Makes a label. `ordinal` counts the tasks with this number and name, from 1. Threads without a number have only the name.
pub fn task_label(name: &str, tid: TaskId, ordinal: u32) -> String {
    match ordinal {
        _ if !tid.has_number() => name.to_owned(),
        0 | 1 => format!("{name} ({tid})"),
        _ => format!("{name} ({tid}, {ordinal}{})", suffix(ordinal)),
    }
}

fn suffix(ordinal: u32) -> &'static str {
    match (ordinal % 100, ordinal % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// Splits a label into name, number and ordinal; `None` for other text.
pub fn split_task_label(label: &str) -> Option<(&str, TaskId, u32)> {
    let (name, number) = label.rsplit_once(" (")?;
    let number = number.strip_suffix(')')?;
    let (tid, ordinal) = match number.split_once(", ") {
        None => (number, 1),
        Some((tid, nth)) => {
            let digits = nth.trim_end_matches(|c: char| c.is_ascii_lowercase());
            let ordinal = digits.parse().ok().filter(|&ordinal| ordinal > 1)?;
            (tid, (nth[digits.len()..] == *suffix(ordinal)).then_some(ordinal)?)
        }
    };
    let is_number = tid.bytes().all(|byte| byte.is_ascii_digit());
    Some((name, TaskId(tid.parse().ok().filter(|_| is_number)?), ordinal))
}

/// The name in a label; other text is returned whole.
pub fn task_name(label: &str) -> &str {
    split_task_label(label).map_or(label, |(name, ..)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_the_number_and_which_task_it_is() {
        for (ordinal, label) in [
            (1, "a (b) (7)"),
            (2, "a (b) (7, 2nd)"),
            (3, "a (b) (7, 3rd)"),
            (11, "a (b) (7, 11th)"),
            (101, "a (b) (7, 101st)"),
        ] {
            assert_eq!(task_label("a (b)", TaskId(7), ordinal), label);
            assert_eq!(split_task_label(label), Some(("a (b)", TaskId(7), ordinal)));
            assert_eq!(task_name(label), "a (b)");
        }
        assert_eq!(task_label("a", TaskId::ENDED, 2), "a");
        for other in ["tar", "tar (x)", "tar (7", "tar (+7)", "tar (7, 2)", "tar (7, 1st)", "tar (7, nd)", "tar ()"] {
            assert_eq!((split_task_label(other), task_name(other)), (None, other));
        }
    }
}
