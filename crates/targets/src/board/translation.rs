//! Patches the address translation of a 32-bit ARM kernel so that it costs the host less, with equal guest time: each replaced instruction
//! is replaced by one instruction.
//!
//! **Domains.** Software PAN (CONFIG_CPU_SW_DOMAIN_PAN) writes the domain access register (DACR) at each entry to and exit from the kernel,
//! and before and after each access to a process's memory. QEMU's TLB has no domains, so QEMU flushes it at each write
//! (target/arm/helper.c, `dacr_write()`). With programs that read and write files, this was a third of a board's whole cost on its host.
//! The patch writes the register once, with a value that always lets the kernel access a process's memory, as on a kernel without that
//! option.
//!
//! **Flushes.** `v7wbi_flush_kern_tlb_range()` (arch/arm/mm/tlb-v7.S) flushes one page at a time. Linux 5.10 and 6.1 flush 72,000 pages
//! with it each time they have freed the start-up code of modules (`__purge_vmap_area_lazy()`), nine times in a boot. In the patched kernel
//! its loop does nothing, and the barrier after it flushes the whole TLB.

/// `mcr p15, 0, rD, c3, c0, 0`, always executed: DACR, ARM DDI 0406C, B4.1.43.
const WRITE_DOMAINS: u32 = 0xee03_0f10;
/// `mov r5, #0x51` of `__enable_mmu` (arch/arm/kernel/head.S): `DACR_INIT`, without access to processes' memory (domain 1).
const NO_USER_ACCESS: u32 = 0xe3a0_5051;
const USER_ACCESS: u32 = 0xe3a0_5055;
/// `mov r0, r0`: an instruction without effect on every ARM.
const NOTHING: u32 = 0xe1a0_0000;

/// Patches an unpacked kernel to write its domain access register once, with access to processes' memory. Returns whether it has that
/// option in the known form.
pub(super) fn write_domains_once(kernel: &mut [u8]) -> bool {
    let words = words(kernel);
    let places: Vec<usize> = (0..words.len()).filter(|&at| words[at] & 0xffff_0fff == WRITE_DOMAINS).collect();
    let mut first = places.iter().filter(|&&at| at > 0 && words[at - 1] == NO_USER_ACCESS && words[at] >> 12 & 15 == 5);
    let (Some(&init), None) = (first.next(), first.next()) else { return false };
    for at in places {
        put(kernel, at, if at == init { words[at] } else { NOTHING });
    }
    put(kernel, init - 1, USER_ACCESS);
    true
}

/// The loop of `v7wbi_flush_kern_tlb_range()`, and the instructions after it.
const FLUSH: [u32; 7] = [
    0xee08_0f73, // mcr p15, 0, r0, c8, c3, 3: TLBIMVAAIS
    0xe280_0a01, // add r0, r0, #4096
    0xe150_0001, // cmp r0, r1
    0x3aff_fffb, // blo: the first
    0xf57f_f04b, // dsb ish
    0xf57f_f06f, // isb
    0xe12f_ff1e, // bx lr
];
/// `mcr p15, 0, r0, c8, c3, 0`: TLBIALLIS, for all processors. QEMU ends its translated code there, as at a barrier.
const FLUSH_ALL: u32 = 0xee08_0f13;

/// Patches an unpacked kernel to flush a range at once. Returns whether it has that function in the known form.
pub(super) fn flush_ranges_at_once(kernel: &mut [u8]) -> bool {
    let words = words(kernel);
    let mut found = words.windows(FLUSH.len()).enumerate().filter(|(_, part)| *part == FLUSH).map(|(at, _)| at);
    let (Some(at), None) = (found.next(), found.next()) else { return false };
    put(kernel, at, NOTHING);
    put(kernel, at + 4, FLUSH_ALL);
    true
}

fn words(kernel: &[u8]) -> Vec<u32> {
    kernel.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect()
}

fn put(kernel: &mut [u8], at: usize, word: u32) {
    kernel[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).chain([1, 2]).collect()
    }

    /// `mcr p15, 0, rD, c3, c0, 0`
    fn write(register: u32) -> u32 {
        WRITE_DOMAINS | register << 12
    }

    #[test]
    fn domains_are_written_by_the_start_alone() {
        // A read (mrc) stays, and so does a conditional write.
        let others = [0xee13_0f10, 0x0e03_0f10];
        let mut kernel = bytes(&[write(3), 7, NO_USER_ACCESS, write(5), write(5), others[0], write(12), others[1]]);
        assert!(write_domains_once(&mut kernel));
        let expected = [NOTHING, 7, USER_ACCESS, write(5), NOTHING, others[0], NOTHING, others[1]];
        assert_eq!(kernel, bytes(&expected));
        assert!(!write_domains_once(&mut kernel), "it is done once");
    }

    #[test]
    fn domains_of_another_form_stay() {
        let start = [NO_USER_ACCESS, write(5)];
        for words in [
            vec![],
            vec![write(5), write(3)],
            vec![USER_ACCESS, write(5), write(3)],
            vec![NO_USER_ACCESS, write(4)],
            vec![NO_USER_ACCESS, 7, write(5)],
            [start, start].concat(),
        ] {
            let mut kernel = bytes(&words);
            assert!(!write_domains_once(&mut kernel), "{words:x?}");
            assert_eq!(kernel, bytes(&words));
        }
    }

    #[test]
    fn a_range_is_flushed_by_what_was_the_barrier() {
        let mut words = vec![7; 3];
        words.extend(FLUSH);
        words.push(9);
        let mut kernel = bytes(&words);
        assert!(flush_ranges_at_once(&mut kernel));
        words[3] = NOTHING;
        words[7] = FLUSH_ALL;
        assert_eq!(kernel, bytes(&words));
        assert!(!flush_ranges_at_once(&mut kernel), "it is done once");
        for words in [[FLUSH, FLUSH].concat(), FLUSH[..6].to_vec(), Vec::new()] {
            let mut kernel = bytes(&words);
            assert!(!flush_ranges_at_once(&mut kernel));
            assert_eq!(kernel, bytes(&words));
        }
    }
}
