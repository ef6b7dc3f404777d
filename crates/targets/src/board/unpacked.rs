//! Unpacks kernels on the host. In emulation, unpacking takes a kernel twice as long as booting afterwards.
//!
//! A kernel that cannot be unpacked here (another compression, another boot protocol) boots unchanged and unpacks itself.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Board, Kernel, delay, translation};
use crate::error::Error;
use crate::process;
use crate::progress::Progress;
use crate::scratch::{ScratchDir, cache_subdir};

/// Largest unpacked kernel: Debian's have 20 MiB (armmp) to 65 MiB (amd64).
const MOST: u64 = 512 << 20;

/// The file that QEMU loads for this kernel: the unpacked kernel, made once and cached, or the original file.
pub(super) fn boot_file(board: &Board, kernel: &Kernel, progress: &dyn Progress) -> Result<PathBuf, Error> {
    // The result depends on the kernel, on the start of the board's RAM, and on this code (`-4`).
    let ram_base = board.qemu.ram_base.map(|base| format!("-{base:x}")).unwrap_or_default();
    let path = cache_subdir("unpacked")?.join(format!("{}{ram_base}-4", kernel.sha256));
    if path.is_file() {
        return Ok(path);
    }
    let packed = std::fs::read(&kernel.vmlinuz).map_err(|e| Error::io(&kernel.vmlinuz, e))?;
    let dir = ScratchDir::new("unpacked")?;
    let Some(unpacked) =
        unpack(&packed, board.qemu.ram_base, spares_the_tlb(&kernel.release), dir.path(), &mut |what| {
            progress.step(&format!("kernel {}: {what}", kernel.name));
        })?
    else {
        let name = &kernel.name;
        progress.step(&format!("kernel {name} cannot be unpacked here and unpacks itself: the boot takes longer"));
        return Ok(kernel.vmlinuz.clone());
    };
    let whole = dir.path().join("whole");
    let write = || {
        std::fs::write(&whole, &unpacked)?;
        // By rename: a file with this name is complete, even if another process makes it at the same time.
        std::fs::rename(&whole, &path)
    };
    write().map_err(|source| Error::Cache { path: path.clone(), source })?;
    Ok(path)
}

/// Whether guest times stay equal without the flushes in `translation.rs`: they do up to Linux 6.12; on 7.2 they change slightly.
fn spares_the_tlb(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) <= (6u32, 12u32))
}

/// The kernel in the form for QEMU; `None` for another header, compression or boot protocol.
fn unpack(
    packed: &[u8],
    ram_base: Option<u32>,
    spares_the_tlb: bool,
    scratch: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Vec<u8>>, Error> {
    let Some(payload) = find(packed, ram_base) else { return Ok(None) };
    let Some(mut unpacked) = payload.unpack(scratch)? else { return Ok(None) };
    let shortened = match payload.image {
        Image::Arm { .. } => {
            if spares_the_tlb {
                translation::write_domains_once(&mut unpacked);
                translation::flush_ranges_at_once(&mut unpacked);
            }
            delay::wait_in_nops(&mut unpacked)
        }
        Image::Elf => {
            delay::calibrate_without_pause(&mut unpacked);
            delay::wait_without_pause(&mut unpacked)
        }
    };
    if !shortened {
        say("its busy wait is of an unknown form: boots with NAND take longer here");
    }
    Ok(match payload.image {
        Image::Arm { load } => Some([uimage_head(load, unpacked.len()), unpacked].concat()),
        Image::Elf => has_pvh_entry(&unpacked).then_some(unpacked),
    })
}

/// The form of the unpacked kernel for QEMU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Image {
    /// 32-bit ARM: a memory image for this address.
    Arm { load: u32 },
    /// x86: an ELF file with a PVH entry.
    Elf,
}

#[derive(Debug)]
struct Payload<'a> {
    image: Image,
    packing: &'static Packing,
    bytes: &'a [u8],
    /// The unpacked size in the kernel's own header.
    unpacked: u32,
}

#[derive(Debug)]
struct Packing {
    magic: &'static [u8],
    command: &'static [&'static str],
    package: &'static str,
    /// The length follows the compressed stream (scripts/Makefile.lib, `size_append`); for gzip it is the end of the stream.
    appended: bool,
}

static PACKINGS: [Packing; 3] = [
    Packing {
        magic: b"\xfd7zXZ\0\0",
        command: &["xz", "-dcq", "--single-stream"],
        package: "xz-utils",
        appended: true,
    },
    Packing { magic: b"\x28\xb5\x2f\xfd", command: &["zstd", "-dcq"], package: "zstd", appended: true },
    Packing { magic: b"\x1f\x8b\x08", command: &["gzip", "-dcq"], package: "gzip", appended: false },
];

fn find(packed: &[u8], ram_base: Option<u32>) -> Option<Payload<'_>> {
    find_x86(packed).or_else(|| find_arm(packed, ram_base?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Documentation/arch/x86/boot.rst: `setup_sects` at 0x1f1, "HdrS" at 0x202, the protocol's version at 0x206; since 2.08
/// `payload_offset` and `payload_length` at 0x248 and 0x24c.
fn find_x86(packed: &[u8]) -> Option<Payload<'_>> {
    let version = u16::from_le_bytes(packed.get(0x206..0x208)?.try_into().ok()?);
    if packed.get(0x202..0x206)? != b"HdrS" || version < 0x208 {
        return None;
    }
    let setup_sectors = match packed[0x1f1] {
        0 => 4,
        n => usize::from(n),
    };
    let start = (setup_sectors + 1) * 512 + usize::try_from(word(packed, 0x248)?).ok()?;
    let end = start.checked_add(usize::try_from(word(packed, 0x24c)?).ok()?)?;
    let bytes = packed.get(start..end)?;
    let packing = PACKINGS.iter().find(|packing| bytes.starts_with(packing.magic))?;
    let (stream, length) = bytes.split_at(bytes.len().checked_sub(4)?);
    let bytes = if packing.appended { stream } else { bytes };
    Some(Payload { image: Image::Elf, packing, bytes, unpacked: word(length, 0)? })
}

/// arch/arm/boot/compressed/head.S and vmlinux.lds.S (since 5.6): at 0x24 the zImage's magic, at 0x30 its byte order, at 0x34 the magic of
/// a table, at 0x38 the table's offset. The table has its length in words, "KLSZ", the offset of the unpacked length, the size of .bss, and
/// `TEXT_OFFSET`, the kernel's distance from the beginning of RAM.
fn find_arm(packed: &[u8], ram_base: u32) -> Option<Payload<'_>> {
    let head = [word(packed, 0x24)?, word(packed, 0x30)?, word(packed, 0x34)?];
    if head != [0x016f_2818, 0x0403_0201, 0x4545_4545] {
        return None;
    }
    let table = usize::try_from(word(packed, 0x38)?).ok()?;
    if word(packed, table)? < 5 || word(packed, table.checked_add(4)?)? != 0x5a53_4c4b {
        return None;
    }
    let length_at = usize::try_from(word(packed, table + 8)?).ok()?;
    let load = ram_base.checked_add(word(packed, table + 16)?)?;
    let unpacked = word(packed, length_at)?;
    let (packing, start) = PACKINGS.iter().find_map(|packing| {
        let at = packed.get(table..length_at)?.windows(packing.magic.len()).enumerate();
        // xz's decoder comes before the stream and contains the magic too; only the stream's flags have their own checksum.
        at.filter(|(_, bytes)| *bytes == packing.magic)
            .map(|(at, _)| table + at)
            .find(|at| {
                packing.command[0] != "xz" || word(packed, at + 8) == packed.get(at + 6..at + 8).map(crc32fast::hash)
            })
            .map(|at| (packing, at))
    })?;
    let end = if packing.appended { length_at } else { length_at + 4 };
    Some(Payload { image: Image::Arm { load }, packing, bytes: &packed[start..end], unpacked })
}

impl Payload<'_> {
    /// The unpacked kernel; `None` if it does not match its header.
    fn unpack(&self, scratch: &Path) -> Result<Option<Vec<u8>>, Error> {
        if u64::from(self.unpacked) > MOST {
            return Ok(None);
        }
        let path = scratch.join("packed");
        std::fs::write(&path, self.bytes).map_err(|e| Error::io(&path, e))?;
        let [program, args @ ..] = self.packing.command else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(args).arg(&path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| process::spawn_error(&command, self.packing.package, e))?;
        let mut unpacked = Vec::new();
        let stdout = child.stdout.take().expect("it is piped");
        // One byte more than expected, so that a longer kernel is refused without reading all of it.
        let read = stdout.take(u64::from(self.unpacked) + 1).read_to_end(&mut unpacked);
        let ended = child.wait().is_ok_and(|status| status.success());
        std::fs::remove_file(&path).ok();
        Ok((read.is_ok() && ended && unpacked.len() as u64 == u64::from(self.unpacked)).then_some(unpacked))
    }
}

/// A header in U-Boot's old image format (include/image.h, `struct legacy_img_hdr`); QEMU loads the image at its address. QEMU checks
/// neither of the two checksums.
fn uimage_head(load: u32, length: usize) -> Vec<u8> {
    let length = u32::try_from(length).expect("at most MOST");
    let mut head = Vec::with_capacity(64);
    // Magic, checksum, time, length, load address, entry, checksum.
    for word in [0x2705_1956, 0, 0, length, load, load, 0] {
        head.extend(u32::to_be_bytes(word));
    }
    // Linux, ARM, a kernel, not compressed.
    head.extend([5, 2, 2, 0]);
    head.resize(64, 0);
    head
}

/// Whether there is a note `XEN_ELFNOTE_PHYS32_ENTRY` (18, include/xen/interface/elfnote.h), which QEMU uses to enter an ELF kernel.
fn has_pvh_entry(elf: &[u8]) -> bool {
    let entries = || -> Option<bool> {
        if elf.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
        let long = |at: usize| -> Option<usize> {
            let bytes = elf.get(at..at.checked_add(8)?)?.try_into().ok()?;
            usize::try_from(u64::from_le_bytes(bytes)).ok()
        };
        let (table, size, count) = (long(0x20)?, usize::from(half(0x36)?), usize::from(half(0x38)?));
        for n in 0..count {
            let entry = table.checked_add(n.checked_mul(size)?)?;
            // PT_NOTE: offset and size in the file.
            if word(elf, entry)? == 4 {
                let start = long(entry.checked_add(8)?)?;
                let notes = elf.get(start..start.checked_add(long(entry.checked_add(32)?)?)?)?;
                if notes_have(notes, b"Xen\0", 18)? {
                    return Some(true);
                }
            }
        }
        None
    };
    entries().is_some()
}

fn notes_have(mut notes: &[u8], owner: &[u8], kind: u32) -> Option<bool> {
    while notes.len() >= 12 {
        let name = usize::try_from(word(notes, 0)?).ok()?;
        let body = usize::try_from(word(notes, 4)?).ok()?.checked_next_multiple_of(4)?;
        if word(notes, 8)? == kind && notes.get(12..12usize.checked_add(name)?)? == owner {
            return Some(true);
        }
        let end = name.checked_next_multiple_of(4)?.checked_add(12)?.checked_add(body)?;
        notes = notes.get(end..)?;
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(packing: &Packing, plain: &[u8]) -> Vec<u8> {
        let dir = ScratchDir::new("pack").unwrap();
        let file = dir.path().join("plain");
        std::fs::write(&file, plain).unwrap();
        let mut command = Command::new(packing.command[0]);
        let mut bytes = process::checked(command.arg("-cq").arg(&file), packing.package).unwrap();
        if packing.appended {
            bytes.extend(u32::try_from(plain.len()).unwrap().to_le_bytes());
        }
        bytes
    }

    fn put(to: &mut [u8], at: usize, value: u32) {
        to[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Like the kernel's build: header, decoder (with xz's magic in it), table, payload.
    fn zimage(packing: &Packing, plain: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 0x200];
        put(&mut image, 0x24, 0x016f_2818);
        put(&mut image, 0x30, 0x0403_0201);
        put(&mut image, 0x34, 0x4545_4545);
        put(&mut image, 0x38, 0x100);
        put(&mut image, 0x100, 6);
        put(&mut image, 0x104, 0x5a53_4c4b);
        put(&mut image, 0x110, 0x20_8000);
        image[0x180..0x188].copy_from_slice(b"\xfd7zXZ\0\0\x01");
        image.extend(packed(packing, plain));
        let length_at = u32::try_from(image.len() - 4).unwrap();
        put(&mut image, 0x108, length_at);
        image.extend([0xaa; 100]);
        image
    }

    fn bzimage(packing: &Packing, plain: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * 512 + 16];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
        let payload = packed(packing, plain);
        put(&mut image, 0x248, 16);
        put(&mut image, 0x24c, u32::try_from(payload.len()).unwrap());
        image.extend(payload);
        image
    }

    fn plain() -> Vec<u8> {
        (0..100_000u32).flat_map(|n| (n.wrapping_mul(n) / 7).to_le_bytes()).collect()
    }

    #[test]
    fn every_packing_of_both_machines() {
        let plain = plain();
        let dir = ScratchDir::new("unpacked-test").unwrap();
        for packing in &PACKINGS {
            let image = zimage(packing, &plain);
            let payload = find(&image, Some(0x4000_0000)).expect("a zImage");
            assert_eq!(payload.image, Image::Arm { load: 0x4020_8000 });
            assert_eq!(payload.unpack(dir.path()).unwrap().as_deref(), Some(&plain[..]), "{packing:?}");
            assert!(find(&image, None).is_none(), "where the board's RAM begins is not known");

            let image = bzimage(packing, &plain);
            let payload = find(&image, None).expect("a bzImage");
            assert_eq!(payload.image, Image::Elf);
            assert_eq!(payload.unpack(dir.path()).unwrap().as_deref(), Some(&plain[..]), "{packing:?}");
        }
    }

    #[test]
    fn damaged_kernels_are_left_as_they_are() {
        let dir = ScratchDir::new("unpacked-test").unwrap();
        let whole = [zimage(&PACKINGS[0], &plain()), bzimage(&PACKINGS[0], &plain())];
        for image in &whole {
            // Cut everywhere in the header, and at some places after it.
            for end in (0..0x700).chain((0x700..image.len()).step_by(997)) {
                if let Some(payload) = find(&image[..end], Some(0)) {
                    assert_eq!(payload.unpack(dir.path()).unwrap(), None, "cut at {end}");
                }
            }
            // Wrong lengths and offsets.
            for at in [0x38, 0x100, 0x104, 0x108, 0x110, 0x248, 0x24c] {
                for lie in [0, 1, 0x7fff_ffff, u32::MAX] {
                    let mut image = image.clone();
                    put(&mut image, at, lie);
                    if let Some(payload) = find(&image, Some(0x4000_0000)) {
                        payload.unpack(dir.path()).unwrap();
                    }
                }
            }
        }
        // A length that the stream does not have.
        let mut image = whole[1].clone();
        let end = image.len();
        put(&mut image, end - 4, 399_999);
        assert_eq!(find(&image, None).unwrap().unpack(dir.path()).unwrap(), None);
        put(&mut image, end - 4, u32::MAX);
        assert_eq!(find(&image, None).unwrap().unpack(dir.path()).unwrap(), None);
    }

    #[test]
    fn the_entry_of_pvh_is_a_note() {
        let note = |owner: &[u8; 4], kind: u32| {
            let mut note = Vec::new();
            for word in [4, 4, kind] {
                note.extend(u32::to_le_bytes(word));
            }
            note.extend(owner);
            note.extend([0; 4]);
            note
        };
        let elf = |notes: Vec<Vec<u8>>| {
            let mut elf = vec![0; 0x40 + 56];
            elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
            elf[0x20] = 0x40;
            elf[0x36] = 56;
            elf[0x38] = 1;
            elf[0x40] = 4;
            let notes = notes.concat();
            elf[0x48] = 0x78;
            elf[0x60] = u8::try_from(notes.len()).unwrap();
            elf.extend(notes);
            elf
        };
        assert!(has_pvh_entry(&elf(vec![note(b"Xen\0", 6), note(b"Xen\0", 18)])));
        assert!(!has_pvh_entry(&elf(vec![note(b"Xen\0", 6), note(b"GNU\0", 18)])));
        let good = elf(vec![note(b"Xen\0", 18)]);
        for end in 0..good.len() - 4 {
            assert!(!has_pvh_entry(&good[..end]), "cut at {end}");
        }
        let mut wrong = good;
        wrong[0x78..0x80].fill(0xff);
        assert!(!has_pvh_entry(&wrong));
    }

    #[test]
    fn kernels_whose_times_stay() {
        let of =
            ["5.10.0-32-armmp", "6.1.0-50-armmp", "6.12.117+deb13-armmp", "6.13.0", "7.2.13+deb14-armmp", "own", ""];
        assert_eq!(of.map(spares_the_tlb), [true, true, true, false, false, false, false]);
    }

    #[test]
    fn an_image_for_qemu() {
        let head = uimage_head(0x4020_8000, 0x1_0203);
        assert_eq!(head.len(), 64);
        assert_eq!(head[..4], [0x27, 0x05, 0x19, 0x56]);
        assert_eq!(head[12..24], [0, 1, 2, 3, 0x40, 0x20, 0x80, 0, 0x40, 0x20, 0x80, 0]);
    }
}
