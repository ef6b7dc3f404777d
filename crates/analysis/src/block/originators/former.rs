//! I/O that tasks did under names that they had before an `exec` or another change of name.

use super::found::Moved;
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most names, and most pairs of an owner and a name. What is beyond counts under the last name alone.
const MAX_NAMES: usize = 1 << 12;
const MAX_PAIRS: usize = 1 << 16;

/// I/O of a task under one of its earlier names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct FormerName {
    pub name: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// Earlier names, numbered from 1, and bytes by owner and name.
pub(super) struct FormerNames {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    bytes: HashMap<(u32, u32), [u64; 2]>,
}

impl Default for FormerNames {
    fn default() -> FormerNames {
        FormerNames { names: Vec::new(), numbers: HashMap::new(), bytes: HashMap::new() }
    }
}

impl FormerNames {
    /// The number of a name; 0 where there are too many.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        if self.names.len() >= MAX_NAMES {
            return 0;
        }
        self.names.push(name.to_owned());
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Bytes of an owner under a name; none if the number of the name is 0.
    pub fn count(&mut self, of: (u32, u32), bytes: u64, moved: Moved) {
        if of.1 == 0
            || bytes == 0
            || moved == Moved::Covered
            || self.bytes.len() >= MAX_PAIRS && !self.bytes.contains_key(&of)
        {
            return;
        }
        let sum = &mut self.bytes.entry(of).or_default()[moved as usize];
        *sum = sum.saturating_add(bytes);
    }

    /// By owner; of each, most bytes first.
    pub fn by_owner(&self) -> BTreeMap<u32, Vec<FormerName>> {
        let mut all: BTreeMap<u32, Vec<FormerName>> = BTreeMap::new();
        for (&(owner, number), &[read_bytes, written_bytes]) in &self.bytes {
            let name = self.names.get(number as usize - 1).cloned().unwrap_or_default();
            all.entry(owner).or_default().push(FormerName { name, read_bytes, written_bytes });
        }
        for names in all.values_mut() {
            let most = |one: &FormerName| std::cmp::Reverse(one.read_bytes.saturating_add(one.written_bytes));
            names.sort_by(|a, b| (most(a), &a.name).cmp(&(most(b), &b.name)));
        }
        all
    }
}
