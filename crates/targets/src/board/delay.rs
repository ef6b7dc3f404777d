//! Patches a kernel's delay loops so that they cost the host less, with equal guest time.
//!
//! On 32-bit ARM, `__timer_delay()` (arch/arm/lib/delay.c) reads the clock until the delay is over. It implements `udelay()`, with which
//! nandsim simulates the chip's time. If guest time counts instructions, QEMU leaves its translated code at each reading of the clock: that
//! is half of the host's cost of a board that reads NAND. Between two readings is `cpu_relax()`, in these kernels a barrier and ten nops
//! (CONFIG_ARM_ERRATA_754327). The patch replaces them by a loop of nops for at most a quarter of the remaining time. The delay still ends
//! with the first reading that is late enough, after about twenty readings instead of thousands.
//!
//! On x86, `delay_tsc()` (arch/x86/lib/delay.c) has a `pause` between two readings. At a `pause`, QEMU leaves its translated code and its
//! loop over processors (target/i386/tcg/misc_helper.c, `do_pause()`). The patch replaces it by a two-byte nop, which takes the board the
//! same time, one instruction. The same holds in `calibrate_APIC_clock()` (arch/x86/kernel/apic/apic.c), which counts the ticks of the
//! local timer during 100 ms at each start: 2.8 of 8 s that a boot cost its host.

/// `dmb ish`, `nop`: `cpu_relax()`.
const RELAX: [u32; 11] = {
    let mut words = [NOP; 11];
    words[0] = 0xf57f_f05b;
    words
};
const NOP: u32 = 0xe320_f000;

/// Patches an unpacked kernel, if it has this function in the known form. Returns whether it does.
pub(super) fn wait_in_nops(kernel: &mut [u8]) -> bool {
    let words: Vec<u32> =
        kernel.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect();
    let mut found = (0..words.len()).filter_map(|at| Some((at, registers(&words, at)?)));
    let (Some((at, (elapsed, cycles))), None) = (found.next(), found.next()) else { return false };
    let to = &mut kernel[at * 4..(at + RELAX.len()) * 4];
    for (bytes, word) in to.chunks_exact_mut(4).zip(waiting(elapsed, cycles)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    true
}

/// Matches the code before a `cpu_relax()`, which only `__timer_delay()` has. Returns the registers of the elapsed time and of the whole
/// delay:
///
/// ```text
/// blx  rF          @ the clock
/// sub  rE, r0, rB  @ passed since the beginning
/// cmp  rE, rC
/// popcs {…, pc}
/// dmb ish, nop…
/// ldr  rF, [rG]
/// ```
fn registers(words: &[u32], at: usize) -> Option<(u32, u32)> {
    if words.get(at..at + RELAX.len())? != RELAX {
        return None;
    }
    let before = words.get(at.checked_sub(4)?..at)?;
    let (elapsed, cycles) = (before[2] >> 16 & 15, before[2] & 15);
    let shape = before[0] & 0xffff_fff0 == 0xe12f_ff30
        && before[1] & 0xffff_0ff0 == 0xe040_0000
        && before[1] >> 12 & 15 == elapsed
        && before[2] & 0xfff0_fff0 == 0xe150_0000
        && before[3] & 0xfe10_8000 == 0x2810_8000;
    // The next instructions read only registers that the clock's function preserves, so r2 is free.
    let next = *words.get(at + RELAX.len())?;
    let kept = |register: u32| (4..=11).contains(&register);
    (shape && next & 0xfff0_0fff == 0xe590_0000 && kept(next >> 16 & 15) && kept(cycles) && elapsed != 2)
        .then_some((elapsed, cycles))
}

/// One pass of the loop has eight instructions. It takes one tick of the clock (16 ns) at 2 ns per instruction, and four ticks at 8 ns. So
/// a quarter of the remaining ticks is never too many passes.
fn waiting(elapsed: u32, cycles: u32) -> [u32; 11] {
    let mut words = [NOP; 11];
    words[0] = 0xe040_2000 | cycles << 16 | elapsed; // sub r2, cycles, elapsed
    words[1] = 0xe1b0_2122; // lsrs r2, r2, #2
    words[2] = 0x0a00_0007; // beq: past the last word
    words[9] = 0xe252_2001; // subs r2, r2, #1
    words[10] = 0x1aff_fff7; // bne: to the first nop
    words
}

/// `rdtsc` with the room for the alternatives `lfence; rdtsc` or `rdtscp`: `rdtsc_ordered()`.
const RDTSC_ORDERED: [u8; 5] = [0x0f, 0x31, 0x90, 0x90, 0x90];
const PAUSE: [u8; 2] = [0xf3, 0x90];
const NOP_OF_TWO: [u8; 2] = [0x66, 0x90];
/// In Debian's kernels from 5.10 to 7.2, 17 to 26 bytes are between the `pause` and either reading.
const NEAR: usize = 40;

/// Removes the `pause` from an unpacked x86 kernel's `delay_tsc()`, if exactly one `pause` is between two ordered readings of the time
/// stamp counter. Returns whether it did.
pub(super) fn wait_without_pause(kernel: &mut [u8]) -> bool {
    let reads = |part: &[u8]| part.windows(RDTSC_ORDERED.len()).any(|bytes| bytes == RDTSC_ORDERED);
    let between = |at: &usize| {
        let end = (at + PAUSE.len() + NEAR).min(kernel.len());
        reads(&kernel[at.saturating_sub(NEAR)..*at]) && reads(&kernel[at + PAUSE.len()..end])
    };
    let pauses = kernel.windows(PAUSE.len()).enumerate().filter(|(_, bytes)| *bytes == PAUSE).map(|(at, _)| at);
    let mut found = pauses.filter(between);
    let (Some(at), None) = (found.next(), found.next()) else { return false };
    drop(found);
    kernel[at..at + PAUSE.len()].copy_from_slice(&NOP_OF_TWO);
    true
}

/// `rdtsc; shl $32, %rdx`: an unordered reading of the counter.
const RDTSC: [u8; 6] = [0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20];
/// `pause`, then a jump of at most 128 bytes.
const PAUSE_AND_JUMP: [u8; 3] = [0xf3, 0x90, 0xeb];

/// Removes the `pause` from an unpacked x86 kernel's `calibrate_APIC_clock()`, if exactly one `pause` is before a jump back over a reading
/// of the time stamp counter. Returns whether it did.
pub(super) fn calibrate_without_pause(kernel: &mut [u8]) -> bool {
    let pauses = kernel.windows(PAUSE_AND_JUMP.len()).enumerate().filter(|(_, bytes)| *bytes == PAUSE_AND_JUMP);
    let over_a_reading = |at: usize| {
        let end = at + PAUSE_AND_JUMP.len() + 1;
        let by = kernel.get(end - 1)?.cast_signed();
        let begin = end.checked_sub(usize::from(by.unsigned_abs())).filter(|_| by < 0)?;
        kernel.get(begin..at)?.windows(RDTSC.len()).any(|bytes| bytes == RDTSC).then_some(at)
    };
    let mut found = pauses.filter_map(|(at, _)| over_a_reading(at));
    let (Some(at), None) = (found.next(), found.next()) else { return false };
    drop(found);
    kernel[at..at + PAUSE.len()].copy_from_slice(&NOP_OF_TWO);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The essential code from GCC 12: a reading, other instructions, the `pause`, and a jump back by `back` bytes.
    fn calibration(others: usize, back: u8) -> Vec<u8> {
        [&[0xcc; 9], &RDTSC[..], &vec![0xcc; others], &PAUSE_AND_JUMP, &[back.wrapping_neg()], &[0xcc; 9]].concat()
    }

    #[test]
    fn the_pause_of_the_calibration_is_taken_out() {
        let mut kernel = calibration(20, 31);
        let mut expected = kernel.clone();
        expected[35..37].copy_from_slice(&NOP_OF_TWO);
        assert!(calibrate_without_pause(&mut kernel));
        assert_eq!(kernel, expected);
        assert!(!calibrate_without_pause(&mut kernel), "it is there once");
        let twice = [calibration(20, 31), calibration(20, 31)].concat();
        let whole = calibration(20, 31);
        let cut = whole[..whole.len() - 10].to_vec();
        // Jumps that do not reach the reading, go forward, or go before the beginning.
        for bytes in [twice, cut, calibration(20, 20), calibration(20, 0x90), calibration(3, 100), Vec::new()] {
            let mut kernel = bytes.clone();
            assert!(!calibrate_without_pause(&mut kernel));
            assert_eq!(kernel, bytes);
        }
    }

    /// The essential code from GCC 12: a reading, the loop's `pause`, a reading; other instructions are `cc` here.
    fn delay_tsc(before: usize, after: usize) -> Vec<u8> {
        [&RDTSC_ORDERED[..], &vec![0xcc; before], &PAUSE, &vec![0xcc; after], &RDTSC_ORDERED].concat()
    }

    #[test]
    fn one_pause_between_two_readings_is_taken_out() {
        // Other functions have a `pause` or a reading too.
        let others = [&PAUSE[..], &[0xcc; 50], &RDTSC_ORDERED, &[0xcc; 50]].concat();
        let mut kernel = [&others[..], &delay_tsc(21, 24), &others].concat();
        let expected = {
            let mut whole = kernel.clone();
            let at = others.len() + RDTSC_ORDERED.len() + 21;
            whole[at..at + 2].copy_from_slice(&NOP_OF_TWO);
            whole
        };
        assert!(wait_without_pause(&mut kernel));
        assert_eq!(kernel, expected);
        assert!(!wait_without_pause(&mut kernel), "it is there once");
    }

    #[test]
    fn pauses_of_another_shape_stay() {
        let twice = [delay_tsc(21, 24), delay_tsc(21, 24)].concat();
        let whole = delay_tsc(21, 24);
        let cut = whole[..whole.len() - 1].to_vec();
        for bytes in [twice, delay_tsc(NEAR, 4), delay_tsc(4, NEAR), cut, PAUSE.to_vec(), Vec::new()] {
            let mut kernel = bytes.clone();
            assert!(!wait_without_pause(&mut kernel));
            assert_eq!(kernel, bytes);
        }
    }

    /// The code from GCC 12: the end of the loop, and the instructions after it.
    fn function(load: u32) -> Vec<u32> {
        let mut words = vec![0xe593_3000, 0xe12f_ff33, 0xe040_3006, 0xe153_0005, 0x28bd_8070];
        words.extend(RELAX);
        words.extend([load, 0xe353_0000, 0x1aff_ffec]);
        words
    }

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn the_loop_stands_where_the_relaxing_stood() {
        // Another function has `cpu_relax()` too.
        let mut words = vec![0; 7];
        words.extend(RELAX);
        words.extend(function(0xe594_3000));
        let mut kernel = bytes(&words);
        kernel.extend([1, 2, 3]);
        assert!(wait_in_nops(&mut kernel));
        let at = 18 + 5;
        words[at..at + 11].copy_from_slice(&waiting(3, 5));
        assert_eq!(kernel[..words.len() * 4], bytes(&words));
        assert_eq!(words[at], 0xe045_2003, "sub r2, r5, r3");
        assert!(!wait_in_nops(&mut kernel), "it is there once");
    }

    #[test]
    fn what_is_otherwise_stays() {
        let twice = [function(0xe594_3000), function(0xe594_3000)].concat();
        // Registers that the clock's function does not preserve.
        for words in [twice, function(0xe592_3000), function(0xe594_3004), RELAX.to_vec(), Vec::new()] {
            let mut kernel = bytes(&words);
            assert!(!wait_in_nops(&mut kernel));
            assert_eq!(kernel, bytes(&words));
        }
        let whole = function(0xe594_3000);
        for end in 0..whole.len() - 2 {
            assert!(!wait_in_nops(&mut bytes(&whole[..end])), "cut at {end}");
        }
        for at in 1..5 {
            let mut words = whole.clone();
            words[at] ^= 0x0000_8000;
            assert!(!wait_in_nops(&mut bytes(&words)), "{at}");
        }
    }
}
