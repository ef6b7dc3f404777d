//! Runs the groups of a study, each on its own board. Over all studies that run together, as many boards run at once as the machine has
//! cores.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Limits the number of boards that run at once. Waiting groups get a board in the order of their requests.
pub struct Boards {
    jobs: usize,
    state: Mutex<Queue>,
    moved: Condvar,
    groups: AtomicUsize,
    finished: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    running: usize,
    /// The next ticket, and the ticket that is served now.
    next: u64,
    turn: u64,
}

/// Permission to run one board; returned when dropped.
struct Leave<'a>(&'a Boards);

impl Boards {
    pub fn new(jobs: NonZeroUsize) -> Boards {
        Boards {
            jobs: jobs.get(),
            state: Mutex::default(),
            moved: Condvar::new(),
            groups: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        }
    }

    /// What would be lost by stopping at this moment, over all studies.
    pub fn interrupted(&self) -> Interrupted {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        Interrupted { finished: of(&self.finished), groups: of(&self.groups) }
    }

    fn wait(&self) -> Leave<'_> {
        let mut queue = lock(&self.state);
        let ticket = queue.next;
        queue.next += 1;
        while queue.turn != ticket || queue.running == self.jobs {
            queue = self.moved.wait(queue).unwrap_or_else(|e| e.into_inner());
        }
        queue.turn += 1;
        queue.running += 1;
        self.moved.notify_all();
        Leave(self)
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).running -= 1;
        self.0.moved.notify_all();
    }
}

#[derive(Debug, thiserror::Error)]
#[error("interrupted: {finished} of {groups} groups are finished and kept; the same command goes on from there")]
pub struct Interrupted {
    pub finished: usize,
    pub groups: usize,
}

/// Calls `work` for each item and returns the results in order, until one fails or the run is stopped.
pub(crate) fn each<S, G, E>(
    specs: &[S],
    boards: &Boards,
    stop: &AtomicBool,
    work: impl Fn(&S) -> Result<G, E> + Sync,
) -> Result<Vec<G>, E>
where
    S: Sync,
    G: Send,
    E: Send + From<Interrupted>,
{
    boards.groups.fetch_add(specs.len(), Ordering::Relaxed);
    let queue = Mutex::new(specs.iter().enumerate());
    let done: Mutex<BTreeMap<usize, G>> = Mutex::new(BTreeMap::new());
    let failure: Mutex<Option<E>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..boards.jobs.min(specs.len()) {
            scope.spawn(|| {
                loop {
                    // A thread without work takes no board.
                    let next = lock(&queue).next();
                    let Some((index, spec)) = next else { return };
                    let leave = boards.wait();
                    if stop.load(Ordering::Relaxed) || lock(&failure).is_some() {
                        return;
                    }
                    match work(spec) {
                        Ok(group) => {
                            lock(&done).insert(index, group);
                            boards.finished.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => drop(lock(&failure).get_or_insert(error)),
                    }
                    drop(leave);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    if stop.load(Ordering::Relaxed) && done.len() < specs.len() {
        return Err(Interrupted { finished: done.len(), groups: specs.len() }.into());
    }
    match failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(error) => Err(error),
        None => Ok(done.into_values().collect()),
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[derive(Debug)]
    enum Failed {
        At(usize),
        Interrupted(Interrupted),
    }

    impl From<Interrupted> for Failed {
        fn from(error: Interrupted) -> Failed {
            Failed::Interrupted(error)
        }
    }

    #[test]
    fn two_studies_never_run_more_boards_than_allowed_and_keep_their_order() {
        let (boards, stop) = (Boards::new(NonZeroUsize::MIN.saturating_add(1)), AtomicBool::new(false));
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |&number: &usize| -> Result<usize, Failed> {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(if number == 0 { 30 } else { 2 }));
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(number * 10)
        };
        let specs: Vec<usize> = (0..9).collect();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| each(&specs, &boards, &stop, work).unwrap());
            let tens: Vec<usize> = specs.iter().map(|number| number * 10).collect();
            assert_eq!(each(&specs, &boards, &stop, work).unwrap(), tens);
            assert_eq!(other.join().unwrap(), tens);
        });
        assert_eq!(most.into_inner(), 2);
    }

    #[test]
    fn a_failure_and_a_stop_begin_no_further_board() {
        let begun = AtomicUsize::new(0);
        let failing = |&number: &usize| -> Result<usize, Failed> {
            begun.fetch_add(1, Ordering::SeqCst);
            if number == 1 { Err(Failed::At(number)) } else { Ok(number) }
        };
        assert!(matches!(
            each(&[0, 1, 2, 3], &Boards::new(NonZeroUsize::MIN), &AtomicBool::new(false), failing),
            Err(Failed::At(1))
        ));
        assert_eq!(begun.into_inner(), 2);

        let (boards, stop) = (Boards::new(NonZeroUsize::MIN), AtomicBool::new(false));
        let stopping = |&number: &usize| -> Result<usize, Failed> {
            stop.store(number == 2, Ordering::Relaxed);
            Ok(number)
        };
        match each(&[0, 1, 2, 3], &boards, &stop, stopping) {
            Err(Failed::Interrupted(Interrupted { finished: 3, groups: 4 })) => {}
            other => panic!("{other:?}"),
        }
        let left = boards.interrupted();
        assert_eq!((left.finished, left.groups), (3, 4));
    }
}
