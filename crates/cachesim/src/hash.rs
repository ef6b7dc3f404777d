//! A hash for small keys of our own making: the default one, made against hostile keys, takes most of a simulation's time.
//! Keys come from traces, so the multiplier is odd and the high bits are folded in: no two pages of a file collide for certain.

use std::hash::{BuildHasherDefault, Hasher};

#[derive(Default)]
pub struct Mix(u64);

/// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, section 6.4).
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(ODD);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Mix>>;
