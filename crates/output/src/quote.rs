//! Quotes names for lines that people type or paste: shell commands, fstab, udev rules, tmpfiles.d.
//!
//! A name comes from a trace, so it can be hostile. `None`: the name cannot be quoted safely in this kind of line, and the
//! line is not offered.

use crate::acts;

/// Most characters of a quoted word. Text is cut after 2,000 ([`crate::visible`]), and a cut quotation stays open: the shell would
/// read the text behind it as another command.
const LONGEST: usize = 500;

fn is_too_long(word: &str) -> bool {
    word.chars().nth(LONGEST).is_some()
}

/// Whether it has only letters, digits and characters that are special in no such line.
fn plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_./:-".contains(&c))
}

/// A word of a POSIX shell: unchanged where it is plain, else in single quotes.
pub fn shell(word: &str) -> Option<String> {
    let more = |c: u8| c.is_ascii_alphanumeric() || b"_./:-@%+,".contains(&c);
    if word.is_empty() || word.chars().any(acts) {
        return None;
    }
    if word.bytes().all(more) && !word.starts_with('-') {
        return Some(word.to_owned()).filter(|word| !is_too_long(word));
    }
    // A name that begins with a dash would be an option; a path that begins with ./ is the same file.
    let dash = if word.starts_with('-') { "./" } else { "" };
    Some(format!("'{dash}{}'", word.replace('\'', r"'\''"))).filter(|quoted| !is_too_long(quoted))
}

/// A word that need not be a file's name, such as a mapped device's or a task's number. `None` where it begins with a dash, as
/// options do, or is a path with `.` or `..`: the kernel's own paths have neither, and it would lead elsewhere.
pub fn argument(word: &str) -> Option<String> {
    let leads_away = word.starts_with('/') && word.split('/').any(|part| matches!(part, "." | ".."));
    if word.starts_with('-') || leads_away { None } else { shell(word) }
}

/// A file below /sys that a line writes to. Its path has a device's name, which must not lead elsewhere.
pub fn sysfs_file(path: &str) -> Option<String> {
    path.strip_prefix("/sys/")?.split('/').all(|part| !matches!(part, "" | "." | "..")).then(|| shell(path))?
}

/// The directory a file system is mounted on.
pub fn mount_point(path: &str) -> Option<String> {
    if path.starts_with('/') { argument(path) } else { None }
}

/// A file of this machine as a word of a shell; where it cannot be quoted, a placeholder with its escaped name.
pub fn shell_path(path: &std::path::Path) -> String {
    let text = path.to_str().and_then(shell);
    text.unwrap_or_else(|| format!("FILE (its name cannot be typed: \"{}\")", crate::visible(&path.to_string_lossy())))
}

/// A field of fstab: blanks and backslashes as octal numbers, as getmntent(3) reads them.
pub fn fstab(field: &str) -> Option<String> {
    if field.is_empty() || field.chars().any(acts) {
        return None;
    }
    let mut out = String::new();
    for c in field.chars() {
        match c {
            ' ' | '\\' | '#' | '"' | '\'' => out.push_str(&format!("\\{:03o}", u32::from(c))),
            c if c.is_whitespace() => return None,
            c => out.push(c),
        }
    }
    Some(out).filter(|field| !is_too_long(field))
}

/// The name of a directory below /sys/class. It is used in paths, in udev matches (`*?[|` and quotes are special and cannot be
/// escaped) and in tmpfiles.d (`%` is special). `None` unless it is plain in all of them.
pub fn sysfs(name: &str) -> Option<&str> {
    (plain(name) && !name.contains('/') && !name.starts_with(['.', '-'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_gives_words_back_or_there_are_none() {
        for word in ["plain", "a b", "it's", "; curl x | sh", "$(id)", "`id`", "a\\b", "\"", "*", "~", "é", "!x", "#"]
        {
            let quoted = shell(word).expect(word);
            let script = format!("printf %s {quoted}");
            let said = std::process::Command::new("/bin/sh").arg("-c").arg(script).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&said.stdout), word);
        }
        assert_eq!(shell("-rf").as_deref(), Some("'./-rf'"));
        assert_eq!(shell("runs/t.dat").as_deref(), Some("runs/t.dat"));
        for bad in ["", "a\nb", "a\u{1b}[31m", "a\u{202e}b", "\u{61c}"] {
            assert_eq!(shell(bad), None, "{bad:?}");
        }
        // Quotes are four characters each.
        for (letter, most) in [("x", LONGEST), (" ", LONGEST - 2), ("'", (LONGEST - 2) / 4)] {
            assert!(shell(&letter.repeat(most)).is_some() && shell(&letter.repeat(most + 1)).is_none(), "{letter:?}");
        }
    }

    #[test]
    fn a_path_leads_where_it_seems_to() {
        assert_eq!(sysfs_file("/sys/block/sda/queue/scheduler").as_deref(), Some("/sys/block/sda/queue/scheduler"));
        assert_eq!(sysfs_file("/sys/block/a b/x").as_deref(), Some("'/sys/block/a b/x'"));
        for bad in ["/sys/block/../../tmp/x", "/sys/./x", "/sys//x", "/sys/", "/etc/passwd", "sys/x", "", "/sys/a\nb"] {
            assert_eq!(sysfs_file(bad), None, "{bad:?}");
        }
        assert_eq!((mount_point("/a b").as_deref(), mount_point("-a"), mount_point("a")), (Some("'/a b'"), None, None));
        assert_eq!((argument("a$b").as_deref(), argument("-x"), argument("")), (Some("'a$b'"), None, None));
        for bad in ["/mnt/../etc", "/.", "/mnt/./x", "/.."] {
            assert_eq!((argument(bad), mount_point(bad)), (None, None), "{bad:?}");
        }
        assert_eq!((argument("../x").as_deref(), argument("/a/..b").as_deref()), (Some("../x"), Some("/a/..b")));
    }

    #[test]
    fn fstab_has_octal_numbers() {
        assert_eq!(fstab("/mnt/my disk").as_deref(), Some("/mnt/my\\040disk"));
        assert_eq!(fstab("a\\b#").as_deref(), Some("a\\134b\\043"));
        assert_eq!(fstab("a\nb 0 0"), None);
        assert_eq!(fstab("a\u{3000}b"), None);
    }

    #[test]
    fn a_name_below_sys_is_plain() {
        for good in ["mtd-0", "ubifs_0_0", "254:0", "btrfs-1", "8:16"] {
            assert_eq!(sysfs(good), Some(good));
        }
        for bad in ["", "..", ".", "-x", "../../etc", "a b", "; curl x | sh", "*", "a\"", "a%i", "a\nb", "é"] {
            assert_eq!(sysfs(bad), None, "{bad:?}");
        }
    }
}
