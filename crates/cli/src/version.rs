//! The text of `--version`: the version, and the architectures of the built-in agents.

use std::sync::LazyLock;

use flashscope_targets::{CARRIED_BY_DESIGN, carried};

/// The text after the program's name.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| of(&carried()));
    &TEXT
}

fn of(carried: &[&str]) -> String {
    let missing: Vec<&str> = CARRIED_BY_DESIGN.into_iter().filter(|arch| !carried.contains(arch)).collect();
    let mut text = env!("CARGO_PKG_VERSION").to_owned();
    if !carried.is_empty() {
        text += &format!("\nagents: {}", carried.join(", "));
    }
    if !missing.is_empty() {
        text += &format!("\nwithout agents for: {} (name one with --agent PATH)", missing.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_which_agents_are_carried_and_which_are_not() {
        let whole = of(&CARRIED_BY_DESIGN);
        assert!(whole.ends_with("\nagents: x86_64, aarch64, armhf, armel, riscv64, mipsel, mips64el"), "{whole}");
        let some = of(&["x86_64", "armhf"]);
        assert!(some.contains("\nagents: x86_64, armhf\nwithout agents for: aarch64, armel, riscv64"), "{some}");
        assert!(of(&[]).contains("\nwithout agents for: x86_64, "), "{}", of(&[]));
    }
}
