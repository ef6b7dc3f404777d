//! Assigns calls to open files, from the events of `open`, `read`, `mmap`, `posix_fadvise` and the like (`--events syscall`).
//!
//! The kernel keeps a window for each open file. Calls have a descriptor, and page-cache events an inode. So a descriptor's file is
//! learnt from the first read of it; advice before that is kept until then. Limit: descriptors are followed by task, so a thread
//! that reads what another one opened, or a child with its parent's descriptor, gets a window of its own here.

use std::collections::HashMap;

use flashscope_cachesim::{Access, MapAdvice, OpenId, PAGE_BYTES};
use flashscope_trace::{Facts, FileId, Record, TaskId, Value};

use crate::workload::{MAX_TASKS, make_room};

/// Most mappings of a task, and most pieces of advice on an open file whose file is not known yet.
const MAX_MAPPED: usize = 1024;
const MAX_PENDING: usize = 64;
/// Open files without a known descriptor have their task's number; numbers of the others begin here, above all tasks.
const FIRST_OPEN: u64 = 1 << 32;

/// `POSIX_FADV_*` and `MADV_*` up to here are the same (include/uapi/linux/fadvise.h, asm-generic/mman-common.h).
const ADVICE_NORMAL: i64 = 0;
const ADVICE_RANDOM: i64 = 1;
const ADVICE_SEQUENTIAL: i64 = 2;
const ADVICE_WILLNEED: i64 = 3;
/// `PROT_EXEC` (include/uapi/asm-generic/mman-common.h).
const PROT_EXEC: i64 = 4;

/// A call that a task is in.
#[derive(Clone, Copy)]
enum Call {
    Open,
    Read {
        descriptor: i64,
    },
    /// Requests pages of an open file without reading them.
    Advise {
        instance: u64,
    },
    Map {
        descriptor: i64,
        length: u64,
        first_page: u64,
        executable: bool,
    },
}

struct Instance {
    open: OpenId,
    file: Option<FileId>,
    /// Advice that was given before its file was known.
    pending: Vec<Access>,
}

/// A mapping of an open file.
#[derive(Clone, Copy)]
struct Mapped {
    instance: u64,
    from: u64,
    length: u64,
    /// The first page of the file in the mapping.
    first_page: u64,
    executable: bool,
    advice: MapAdvice,
}

impl Mapped {
    fn end_page(&self) -> u64 {
        self.first_page.saturating_add(self.length.div_ceil(PAGE_BYTES))
    }
}

#[derive(Default)]
pub struct Descriptors {
    /// Calls by number, with the names of their registers (facts' `raw_syscalls`).
    registers: HashMap<i64, (String, Vec<Option<String>>)>,
    by_number: HashMap<(TaskId, i64), u64>,
    instances: HashMap<u64, Instance>,
    mapped: HashMap<TaskId, Vec<Mapped>>,
    inside: HashMap<TaskId, Call>,
    /// Accesses of the calls so far whose file is known, for the caller to take.
    pub ready: Vec<FileAccess>,
    opened: u64,
    /// Calls, open files, mappings and pieces of advice that were forgotten because there were too many at once.
    pub forgotten: u64,
}

/// An access to the cache: a file, one of its open files, and the operation.
pub type FileAccess = (FileId, OpenId, Access);

impl Descriptors {
    pub fn new(facts: &Facts) -> Descriptors {
        let calls = facts.recording.raw_syscalls.iter();
        let calls = calls.filter_map(|call| Some((call.id?, (call.name.clone()?, call.arguments.clone()?))));
        Descriptors { registers: calls.take(64).collect(), ..Descriptors::default() }
    }

    /// Whether any open file is known by its descriptor.
    pub fn any(&self) -> bool {
        self.opened > 0
    }

    /// A call begins. Returns whether it requests pages without reading them.
    pub fn entered(&mut self, record: &Record<'_>) -> bool {
        let tid = record.tid();
        if let Some(name) = record.schema.name.strip_prefix("sys_enter_") {
            // Where offsets take two registers, the call's own event shows other values; the event of its registers follows.
            let split = matches!(name, "readahead" | "fadvise64_64" | "arm_fadvise64_64");
            if split && self.registers.values().any(|(known, _)| name.ends_with(known.as_str())) {
                return false;
            }
            let argument = |name: &str| record.get(name).and_then(integer);
            self.call(tid, name, &argument)
        } else if record.schema.name == "sys_enter"
            && let Some(id) = record.get("id").and_then(integer)
            && let Some((name, names)) = self.registers.get(&id).cloned()
        {
            let Some(Value::Array(registers)) = record.get("args") else { return false };
            let of = |name: &str| {
                let at = names.iter().position(|one| one.as_deref() == Some(name))?;
                integer(registers.get(at)?)
            };
            let argument = |name: &str| {
                of(name).or_else(|| {
                    let (low, high) = (of(&format!("{name}_low"))?, of(&format!("{name}_high"))?);
                    Some(low & 0xffff_ffff | high << 32)
                })
            };
            self.call(tid, &name, &argument)
        } else {
            false
        }
    }

    fn call(&mut self, tid: TaskId, name: &str, argument: &dyn Fn(&str) -> Option<i64>) -> bool {
        let descriptor = || argument("fd");
        let length = |name: &str| argument(name).map(|length| length.max(0) as u64);
        let call = match name {
            "open" | "openat" | "openat2" => Some(Call::Open),
            "read" | "pread64" | "readv" | "preadv" | "preadv2" => {
                descriptor().map(|descriptor| Call::Read { descriptor })
            }
            "mmap" | "mmap2" | "mmap_pgoff" => descriptor()
                .zip(length("len"))
                .filter(|&(descriptor, _)| descriptor as i32 >= 0)
                .map(|(descriptor, length)| {
                    // mmap() counts bytes, mmap_pgoff() and mmap2() pages of 4 KiB.
                    let pages = argument("pgoff").or_else(|| Some(argument("off")? / PAGE_BYTES as i64));
                    let executable = argument("prot").is_some_and(|prot| prot & PROT_EXEC != 0);
                    Call::Map { descriptor, length, first_page: pages.unwrap_or(0).max(0) as u64, executable }
                }),
            "close" => {
                if let Some(instance) = descriptor().and_then(|number| self.by_number.remove(&(tid, number))) {
                    let maps = self.mapped.get(&tid).into_iter().flatten();
                    if !maps.into_iter().any(|mapped| mapped.instance == instance) {
                        self.instances.remove(&instance);
                    }
                }
                None
            }
            "readahead" => {
                let access = length("offset")
                    .zip(length("count"))
                    .filter(|&(_, length)| length > 0)
                    .map(|(offset, length)| Access::WillNeed { offset, length });
                self.advise(tid, descriptor(), access).map(|instance| Call::Advise { instance })
            }
            "fadvise64" | "fadvise64_64" | "arm_fadvise64_64" => {
                let range = length("offset").zip(length("len"));
                let access = match argument("advice") {
                    Some(ADVICE_NORMAL) => Some(Access::AdviseNormal),
                    Some(ADVICE_RANDOM) => Some(Access::AdviseRandom),
                    Some(ADVICE_SEQUENTIAL) => Some(Access::AdviseSequential),
                    Some(ADVICE_WILLNEED) => range.map(|(offset, length)| Access::WillNeed { offset, length }),
                    _ => None,
                };
                let asks = matches!(access, Some(Access::WillNeed { .. }));
                let instance = self.advise(tid, descriptor(), access);
                instance.filter(|_| asks).map(|instance| Call::Advise { instance })
            }
            "madvise" => {
                let known = argument("start").zip(argument("behavior"));
                let needed = known.and_then(|(from, advice)| {
                    self.advise_mapping(tid, address(from), length("len_in").unwrap_or(0), advice)
                });
                needed.map(|instance| Call::Advise { instance })
            }
            _ => None,
        };
        // `None`: the event of registers adds nothing to a call that its own event has begun.
        if let Some(call) = call {
            self.forgotten += make_room(&mut self.inside, &tid);
            self.inside.insert(tid, call);
        }
        matches!(call, Some(Call::Advise { .. }))
    }

    /// Pages of this file were added in the call that requests them.
    pub fn advised(&mut self, tid: TaskId, file: FileId) {
        if let Some(&Call::Advise { instance }) = self.inside.get(&tid) {
            self.learn(instance, file);
        }
    }

    /// The task's call returned this value.
    pub fn returned(&mut self, tid: TaskId, value: i64) {
        match self.inside.remove(&tid) {
            Some(Call::Open) if (0..i64::from(i32::MAX)).contains(&value) => {
                self.open(tid, value);
            }
            Some(Call::Map { descriptor, length, first_page, executable }) if !(-4095..0).contains(&value) => {
                let instance = self.instance(tid, descriptor);
                let from = address(value);
                let maps = self.mapped.entry(tid).or_default();
                maps.retain(|mapped| mapped.from != from);
                if maps.len() < MAX_MAPPED {
                    maps.push(Mapped { instance, from, length, first_page, executable, advice: MapAdvice::Normal });
                } else {
                    self.forgotten += 1;
                }
                if self.mapped.len() > MAX_TASKS {
                    self.forgotten += self.mapped.values().map(|maps| maps.len() as u64).sum::<u64>();
                    self.mapped.clear();
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, tid: TaskId, descriptor: i64) -> u64 {
        // A mapped file, or one whose descriptor was reused unseen, stays longer than its descriptor.
        if self.instances.len() >= MAX_TASKS {
            self.forgotten += self.instances.len() as u64;
            self.instances.clear();
            self.by_number.clear();
        }
        self.opened += 1;
        let number = self.opened;
        let open = OpenId(FIRST_OPEN + number);
        self.instances.insert(number, Instance { open, file: None, pending: Vec::new() });
        self.by_number.insert((tid, descriptor), number);
        number
    }

    /// The open file of a descriptor; one that was opened before the recording counts as new.
    fn instance(&mut self, tid: TaskId, descriptor: i64) -> u64 {
        match self.by_number.get(&(tid, descriptor)) {
            Some(&number) if self.instances.contains_key(&number) => number,
            _ => self.open(tid, descriptor),
        }
    }

    /// The open file that advice was given on.
    fn advise(&mut self, tid: TaskId, descriptor: Option<i64>, access: Option<Access>) -> Option<u64> {
        let number = self.instance(tid, descriptor.filter(|_| access.is_some())?);
        self.accessed(number, access?)
    }

    fn accessed(&mut self, number: u64, access: Access) -> Option<u64> {
        let instance = self.instances.get_mut(&number)?;
        match instance.file {
            Some(file) => self.ready.push((file, instance.open, access)),
            None if instance.pending.len() < MAX_PENDING => instance.pending.push(access),
            None => self.forgotten += 1,
        }
        Some(number)
    }

    /// The open file of the pages that `madvise` requests.
    fn advise_mapping(&mut self, tid: TaskId, from: u64, length: u64, advice: i64) -> Option<u64> {
        let advice = match advice {
            ADVICE_NORMAL => MapAdvice::Normal,
            ADVICE_RANDOM => MapAdvice::Random,
            ADVICE_SEQUENTIAL => MapAdvice::Sequential,
            ADVICE_WILLNEED => return self.mapping_needed(tid, from, length),
            _ => return None,
        };
        for mapped in self.mapped.entry(tid).or_default() {
            if from.wrapping_sub(mapped.from) < mapped.length {
                mapped.advice = advice;
            }
        }
        None
    }

    /// `madvise_willneed` (mm/madvise.c): as `posix_fadvise` for the part of the file that is mapped there.
    fn mapping_needed(&mut self, tid: TaskId, from: u64, length: u64) -> Option<u64> {
        let maps = self.mapped.get(&tid).into_iter().flatten();
        let mapped = *maps.rev().find(|mapped| from.wrapping_sub(mapped.from) < mapped.length)?;
        let within = from - mapped.from;
        let offset = mapped.first_page.saturating_mul(PAGE_BYTES).saturating_add(within);
        let length = length.min(mapped.length - within);
        if length == 0 {
            return None;
        }
        self.accessed(mapped.instance, Access::WillNeed { offset, length })
    }

    /// The task reads this file: returns the open file. Earlier advice on it is now ready.
    pub fn read(&mut self, tid: TaskId, file: FileId) -> OpenId {
        let Some(&Call::Read { descriptor }) = self.inside.get(&tid) else { return OpenId(u64::from(tid.0)) };
        let mut number = self.instance(tid, descriptor);
        if self.instances.get(&number).is_some_and(|instance| instance.file.is_some_and(|known| known != file)) {
            // It was closed and opened again without an event.
            number = self.open(tid, descriptor);
        }
        self.learn(number, file).unwrap_or(OpenId(u64::from(tid.0)))
    }

    fn learn(&mut self, number: u64, file: FileId) -> Option<OpenId> {
        let instance = self.instances.get_mut(&number)?;
        instance.file = Some(file);
        let open = instance.open;
        self.ready.extend(instance.pending.drain(..).map(|access| (file, open, access)));
        Some(open)
    }

    /// The open file of a fault: of the task's last mapping of this file, if possible one with the page; else of its last mapping whose file is
    /// not known.
    pub fn fault(&mut self, tid: TaskId, file: FileId, page: u64) -> (OpenId, MapAdvice) {
        let of = |mapped: &Mapped| self.instances.get(&mapped.instance).map(|instance| instance.file);
        let maps = self.mapped.get(&tid).map_or(&[][..], Vec::as_slice);
        let has = |mapped: &&Mapped| (mapped.first_page..mapped.end_page()).contains(&page);
        let ours = || maps.iter().rev().filter(|mapped| of(mapped) == Some(Some(file)));
        let known = ours().find(has).or_else(|| ours().next());
        let found = known.or_else(|| maps.iter().rev().find(|mapped| of(mapped) == Some(None))).copied();
        let nothing = (OpenId(u64::from(tid.0)), MapAdvice::Normal);
        let Some(mapped) = found else { return nothing };
        let advice = match mapped.advice {
            MapAdvice::Normal if mapped.executable => {
                MapAdvice::Executable { first: mapped.first_page, end: mapped.end_page() }
            }
            advice => advice,
        };
        self.learn(mapped.instance, file).map_or(nothing, |open| (open, advice))
    }
}

/// The return value of a call, from its event.
pub fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Signed(value) => Some(value),
        Value::Unsigned(value) => i64::try_from(value).ok(),
        _ => None,
    }
}

/// An address of user space: a 32-bit kernel's `long` is negative above 2 GiB.
fn address(value: i64) -> u64 {
    match u32::try_from(value & 0xffff_ffff) {
        Ok(low) if (i64::from(i32::MIN)..0).contains(&value) => u64::from(low),
        _ => value as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::Device;

    const FILE: FileId = FileId { device: Some(Device(1)), inode: 5 };
    const OTHER: FileId = FileId { device: Some(Device(1)), inode: 6 };

    fn call(d: &mut Descriptors, name: &str, arguments: &[(&str, i64)], returns: i64) -> Vec<FileAccess> {
        let of = |name: &str| arguments.iter().find(|(known, _)| *known == name).map(|&(_, value)| value);
        d.call(TaskId(7), name, &of);
        d.returned(TaskId(7), returns);
        std::mem::take(&mut d.ready)
    }

    fn read(d: &mut Descriptors, descriptor: i64, file: FileId) -> (OpenId, Vec<FileAccess>) {
        d.call(TaskId(7), "pread64", &|name| (name == "fd").then_some(descriptor));
        let open = d.read(TaskId(7), file);
        d.returned(TaskId(7), 100);
        (open, std::mem::take(&mut d.ready))
    }

    #[test]
    fn each_open_has_a_window_of_its_own_and_advice_waits_for_the_file() {
        let mut d = Descriptors::default();
        call(&mut d, "openat", &[], 3);
        call(&mut d, "fadvise64", &[("fd", 3), ("advice", ADVICE_RANDOM)], 0);
        let (first, accesses) = read(&mut d, 3, FILE);
        assert_eq!(accesses, [(FILE, first, Access::AdviseRandom)]);
        assert_eq!(read(&mut d, 3, FILE), (first, vec![]));
        let willneed = [("fd", 3), ("advice", ADVICE_WILLNEED), ("offset", 4096), ("len", 0)];
        let accesses = call(&mut d, "fadvise64", &willneed, 0);
        assert_eq!(accesses, [(FILE, first, Access::WillNeed { offset: 4096, length: 0 })]);
        call(&mut d, "close", &[("fd", 3)], 0);
        call(&mut d, "openat", &[], 3);
        let (second, _) = read(&mut d, 3, FILE);
        assert_ne!(first, second);
        // Closed and opened out of sight: another file under the same number.
        assert_ne!(read(&mut d, 3, OTHER).0, second);
        assert!(d.any());
    }

    #[test]
    fn a_mapping_has_its_advice() {
        let mut d = Descriptors::default();
        call(&mut d, "openat", &[], 3);
        // 32-bit kernels' addresses above 2 GiB are negative.
        let at = i64::from(0xb6f0_0000_u32 as i32);
        call(&mut d, "mmap_pgoff", &[("fd", 3), ("len", 8192)], at);
        call(&mut d, "madvise", &[("start", at & 0xffff_ffff), ("behavior", ADVICE_SEQUENTIAL)], 0);
        let (open, advice) = d.fault(TaskId(7), FILE, 1);
        assert_eq!(advice, MapAdvice::Sequential);
        assert_eq!(d.fault(TaskId(7), FILE, 0).0, open);
        // Nothing is known of this one.
        assert_eq!(d.fault(TaskId(7), OTHER, 0), (OpenId(7), MapAdvice::Normal));
    }

    /// As ld.so does it: the whole file, then its text over it.
    #[test]
    fn a_program_s_text_is_told_from_the_rest_of_its_file() {
        let mut d = Descriptors::default();
        call(&mut d, "openat", &[], 3);
        call(&mut d, "mmap_pgoff", &[("fd", 3), ("len", 40 << 12), ("prot", 1), ("pgoff", 0)], 0x1000_0000);
        call(&mut d, "mmap", &[("fd", 3), ("len", (10 << 12) - 5), ("prot", 5), ("off", 8 << 12)], 0x1000_8000);
        // A call that names no descriptor's file is taken for the last mapping that nothing is known of.
        d.fault(TaskId(7), FILE, 0);
        assert_eq!(d.fault(TaskId(7), FILE, 12).1, MapAdvice::Executable { first: 8, end: 18 });
        assert_eq!(d.fault(TaskId(7), FILE, 20).1, MapAdvice::Normal);
        let ask = [("start", 0x1000_9000), ("len_in", 1 << 30), ("behavior", ADVICE_WILLNEED)];
        let asked = call(&mut d, "madvise", &ask, 0);
        assert!(matches!(asked[..], [(FILE, _, Access::WillNeed { offset: 36_864, length: 36_859 })]), "{asked:?}");
    }

    #[test]
    fn what_is_forgotten_is_counted() {
        let mut d = Descriptors::default();
        let most = MAX_TASKS as u64;
        // The first open file without room takes those before it away.
        (0..=most as i64).for_each(|number| drop(call(&mut d, "openat", &[], number)));
        assert_eq!(d.forgotten, most);
        // So does the first call at once without room.
        (0..=most).for_each(|tid| assert!(!d.call(TaskId(tid as u32), "openat", &|_| None)));
        assert_eq!(d.forgotten, 2 * most);
        let ask = [("fd", 5), ("advice", ADVICE_RANDOM)];
        (0..=MAX_PENDING).for_each(|_| drop(call(&mut d, "fadvise64", &ask, 0)));
        assert_eq!(d.forgotten, 2 * most + 1);
        for at in 0..=MAX_MAPPED as i64 {
            call(&mut d, "mmap", &[("fd", 5), ("len", 4096)], 0x1000_0000 + at * 8192);
        }
        assert_eq!(d.forgotten, 2 * most + 2);
    }

    #[test]
    fn nonsense_is_no_panic() {
        let mut d = Descriptors::default();
        let calls = ["openat", "close", "read", "mmap", "madvise", "readahead", "fadvise64", "splice"];
        for name in calls {
            for value in [i64::MIN, -1, 0, 3, i64::MAX] {
                let all = ["fd", "len", "start", "behavior", "offset", "count", "advice", "len_in", "prot", "pgoff"]
                    .map(|name| (name, value));
                call(&mut d, name, &all, value);
                call(&mut d, name, &[], value);
                read(&mut d, value, FILE);
                d.fault(TaskId(7), FILE, value as u64);
            }
        }
    }
}
