//! The loop that runs a study of any kind. It fetches what the boots need, then boots each group on a fresh board, up to a given number of
//! boards at once. Finished groups are kept for a resume.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use flashscope_targets::board::{self, Board, BootFailureKind, ImageBuilder, Kernel, Package, Run};
use flashscope_targets::{Error, Progress};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::boards::each;
use crate::definition::Filesystem;
use crate::error::StudyError;
use crate::lab;
use crate::medium::Medium;
use crate::options::{Options, RunProgress};
use crate::plan::{self, modules};
use crate::result::{Header, Inputs};
use crate::size::Bytes;

/// A kind of study: how its groups boot, and how their results are read.
pub(crate) trait Kind: Sync {
    /// One group before its boot.
    type Spec: Sync;
    /// The results of its boot.
    type Group: Serialize + DeserializeOwned + Send;
    /// The storage of the boot, for [`Kind::collect`].
    type Medium;

    fn id(&self, spec: &Self::Spec) -> String;

    /// Names of its board and its kernel line.
    fn target<'a>(&self, spec: &'a Self::Spec) -> [&'a str; 2];

    fn cells(&self, _spec: &Self::Spec) -> usize {
        1
    }

    /// RAM that replaces the board's.
    fn memory(&self, _spec: &Self::Spec) -> Option<Bytes> {
        None
    }

    /// Kernel modules that may have to be built first.
    fn modules(&self, _spec: &Self::Spec) -> Vec<&'static str> {
        Vec::new()
    }

    /// Debian packages for all groups, one list for each directory of the image.
    fn packages(&self) -> Vec<Vec<String>> {
        Vec::new()
    }

    /// Adds what this group's boot needs; the port modules are there already.
    fn image(&self, spec: &Self::Spec, boot: &mut Boot<'_>) -> Result<Self::Medium, StudyError>;

    fn collect(
        &self,
        port: &Path,
        spec: &Self::Spec,
        inputs: Inputs,
        medium: Self::Medium,
    ) -> Result<Self::Group, StudyError>;

    /// The result of a failed boot, for kinds for which a failure is a result.
    fn failed(&self, _spec: &Self::Spec, _why: &BootFailureKind) -> Option<Self::Group> {
        None
    }

    /// Whether a group kept from an earlier run has all that is wanted now.
    fn is_whole(&self, _spec: &Self::Spec, _group: &Self::Group) -> bool {
        true
    }
}

/// A boot image that is being composed, and its parts.
pub(crate) struct Boot<'a> {
    pub board: &'a Board,
    kernel: &'a Kernel,
    /// In the order of [`Kind::packages`].
    pub packages: &'a [Vec<Package>],
    pub options: &'a Options,
    pub image: ImageBuilder,
    /// The plan.
    pub lines: Vec<String>,
}

impl Boot<'_> {
    /// Loads these modules and their dependencies, each with these options.
    pub fn load(&mut self, names: &[&str], options: &str) -> Result<(), StudyError> {
        let paths = self.image.add_module_closure(self.kernel, names)?;
        self.lines.extend(paths.iter().map(|path| format!("module {path}{options}")));
        Ok(())
    }

    /// Adds a chip with partitions of this many blocks.
    pub fn nand(&mut self, partitions: &[u64]) -> Result<(), StudyError> {
        self.lines.extend(self.image.add_nand(self.kernel, partitions)?);
        Ok(())
    }

    /// Adds the storage of a file system: space on the chip for `bytes` of files, or the disk with these settings and the user's.
    pub fn storage(
        &mut self,
        group: String,
        filesystem: Filesystem,
        bytes: Bytes,
        mut disk_settings: Vec<(String, String)>,
    ) -> Result<Medium, StudyError> {
        match (filesystem.on_disk(), self.board.chip(), self.board.disk()) {
            (false, Some(chip), _) => {
                self.nand(&[plan::partition_blocks(bytes, chip.block_bytes())])?;
                Ok(Medium::Chip { name: chip.name.clone(), page_bytes: chip.page_bytes })
            }
            (true, _, Some(disk)) => {
                disk_settings.extend(self.options.disk.iter().cloned());
                disk_settings.push(("filesystem".to_owned(), filesystem.as_str().to_owned()));
                let settings = disk.settings(&self.board.name, &disk_settings)?;
                self.lines.extend(self.image.add_disk(self.kernel, &settings)?);
                Ok(Medium::Disk {
                    name: format!("{} ({settings})", disk.name),
                    device: disk.device.clone(),
                    bytes: settings.size_bytes(),
                })
            }
            (on_disk, ..) => Err(no_storage(group, &self.board.name, on_disk)),
        }
    }

    /// Like [`Boot::storage`], with the modules of the file system; waits for the chip's device.
    pub fn storage_and_modules(
        &mut self,
        group: String,
        filesystem: Filesystem,
        bytes: Bytes,
        disk_settings: Vec<(String, String)>,
    ) -> Result<Medium, StudyError> {
        let medium = self.storage(group, filesystem, bytes, disk_settings)?;
        if medium.device().is_none() {
            self.lines.push("device-wait /dev/mtd0 5000".to_owned());
        }
        self.load(modules(filesystem), "")?;
        Ok(medium)
    }
}

pub(crate) fn no_storage(group: String, board: &str, on_disk: bool) -> StudyError {
    let what = if on_disk { "disk" } else { "raw NAND" };
    StudyError::NoStorage { group, board: board.to_owned(), what }
}

/// Boards, kernels and packages of a study, fetched before the first boot.
pub(crate) struct Lab<'a, K: Kind> {
    kind: &'a K,
    specs: &'a [K::Spec],
    options: &'a Options,
    watch: &'a dyn RunProgress,
    boards: BTreeMap<&'a str, (Board, String)>,
    kernels: BTreeMap<[&'a str; 2], (Kernel, Vec<Vec<Package>>)>,
}

impl<'a, K: Kind> Lab<'a, K> {
    pub fn prepare(
        kind: &'a K,
        specs: &'a [K::Spec],
        options: &'a Options,
        watch: &'a dyn RunProgress,
    ) -> Result<Self, StudyError> {
        let mut boards = BTreeMap::new();
        let mut kernels: BTreeMap<[&str; 2], (Kernel, Vec<Vec<Package>>)> = BTreeMap::new();
        let packages = kind.packages();
        for spec in specs {
            let [name, line] = kind.target(spec);
            if !boards.contains_key(name) {
                let board = board::load(name)?;
                let qemu = board.qemu_version()?;
                boards.insert(name, (board, qemu));
            }
            let (board, _) = &boards[name];
            if let Entry::Vacant(entry) = kernels.entry([name, line]) {
                let kernel = board.fetch(line, watch.progress())?;
                let fetch = |names: &Vec<String>| match names.is_empty() {
                    true => Ok(Vec::new()),
                    false => board.fetch_packages(&kernel, names, watch.progress()),
                };
                let packages = packages.iter().map(fetch).collect::<Result<_, _>>()?;
                entry.insert((kernel, packages));
            }
            board.prepare_modules(&kernels[&[name, line]].0, &kind.modules(spec), watch.progress())?;
        }
        Ok(Lab { kind, specs, options, watch, boards, kernels })
    }

    /// Runs every group; returns them in the order of their specs.
    pub fn run(&self) -> Result<Vec<K::Group>, StudyError> {
        each(self.specs, &self.options.boards, &self.options.stop, |spec| self.group(spec))
    }

    /// The header of the results.
    pub fn header(&self, schema: u32, [study, title, question]: [&str; 3], sha256: &str) -> Header {
        let mut clocks: Vec<&str> = self.boards.values().map(|(board, _)| board.clock.as_str()).collect();
        clocks.sort_unstable();
        clocks.dedup();
        Header {
            schema,
            study: study.to_owned(),
            title: title.to_owned(),
            question: question.to_owned(),
            clock: clocks.join("; "),
            flashscope: env!("CARGO_PKG_VERSION").to_owned(),
            study_sha256: sha256.to_owned(),
        }
    }

    fn group(&self, spec: &K::Spec) -> Result<K::Group, StudyError> {
        let Lab { kind, options, watch, .. } = *self;
        let began = std::time::Instant::now();
        let (id, cells) = (kind.id(spec), kind.cells(spec));
        let [name, line] = kind.target(spec);
        let (board, qemu) = &self.boards[name];
        let other = kind.memory(spec).map(|memory| board.with_memory_mib(memory.0 >> 20));
        let board = other.as_ref().unwrap_or(board);
        let (kernel, packages) = &self.kernels[&[name, line]];

        let mut image = ImageBuilder::new(board)?;
        let lines = image.add_port_modules(kernel)?;
        let mut boot = Boot { board, kernel, packages, options, image, lines };
        let medium = kind.image(spec, &mut boot)?;
        let Boot { mut image, lines, .. } = boot;
        image.set_plan(&lines);
        let image = image.build()?;

        let inputs = lab::inputs(board, line, kernel, &image, qemu.clone());
        let kept = lab::kept_at(&options.store, &id, &inputs);
        if !options.fresh
            && let Some(group) = lab::kept::<K::Group>(&kept).filter(|group| kind.is_whole(spec, group))
        {
            watch.group_finished(&id, began.elapsed(), true);
            return Ok(group);
        }
        watch.group_started(&id, cells);
        let run = Run { timeout: options.timeout, stop: Some(&*options.stop), ..Run::new(board, kernel, &image) };
        let group = match board::boot(&run, &CellProgress { watch, id: &id, cells }) {
            Ok(boot) => kind.collect(&boot.port_file(), spec, inputs, medium)?,
            Err(Error::Boot(failure)) => match kind.failed(spec, &failure.kind) {
                Some(group) => group,
                None => return Err(Error::Boot(failure).into()),
            },
            Err(error) => return Err(error.into()),
        };
        lab::keep(&kept, &group)?;
        watch.group_finished(&id, began.elapsed(), false);
        Ok(group)
    }
}

/// Progress of a board's steps, as cells of a group.
struct CellProgress<'a> {
    watch: &'a dyn RunProgress,
    id: &'a str,
    cells: usize,
}

impl Progress for CellProgress<'_> {
    fn step(&self, text: &str) {
        self.watch.progress().step(&format!("{}: {text}", self.id));
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        self.watch.progress().bytes(done, total);
    }

    fn plan_step(&self, name: &str) {
        if let Some(index) = plan::cell_of_step(name) {
            self.watch.cell_started(self.id, index + 1, self.cells);
        }
    }
}
