//! The requests in a device: bios that were issued together are one request until the last is done.

use super::in_flight::Bio;
use super::watch::Step;

/// No request.
const NONE: u32 = u32::MAX;

/// Requests in the device, by their bios.
#[derive(Default)]
pub(super) struct InService {
    /// Request of each bio in flight.
    of_bio: Vec<u32>,
    /// Bios left in each request.
    left: Vec<u32>,
    free: Vec<u32>,
    now: u32,
}

impl InService {
    /// The bios that are issued next form a new request.
    pub fn issue(&mut self) {
        self.now = NONE;
    }

    /// Returns whether the bio is its request's first.
    fn enter(&mut self, at: u32) -> bool {
        let at = at as usize;
        if self.of_bio.len() <= at {
            self.of_bio.resize(at + 1, NONE);
        }
        let first = self.now == NONE;
        if first {
            self.now = self.free.pop().unwrap_or_else(|| {
                self.left.push(0);
                (self.left.len() - 1) as u32
            });
            self.left[self.now as usize] = 0;
        }
        self.left[self.now as usize] += 1;
        self.of_bio[at] = self.now;
        first
    }

    /// Returns whether the bio was its request's last.
    fn leave(&mut self, at: u32) -> bool {
        let Some(request) = self.of_bio.get_mut(at as usize) else { return false };
        let request = std::mem::replace(request, NONE);
        if request == NONE {
            return false;
        }
        let left = &mut self.left[request as usize];
        *left -= 1;
        let last = *left == 0;
        if last {
            if self.now == request {
                self.now = NONE;
            }
            self.free.push(request);
        }
        last
    }

    /// +1 where a request entered the device with this step, -1 where one left it.
    pub fn step(&mut self, at: u32, step: Step) -> i32 {
        match step {
            Step::Issued => {
                let left = self.leave(at);
                i32::from(self.enter(at)) - i32::from(left)
            }
            Step::Requeued => -i32::from(self.leave(at)),
            _ => 0,
        }
    }

    /// Whether the bio is the only one left of a request in the device.
    pub fn is_last(&self, at: u32) -> bool {
        let request = self.of_bio.get(at as usize).filter(|request| **request != NONE);
        request.is_some_and(|request| self.left[*request as usize] == 1)
    }

    pub fn ended(&mut self, at: u32, _bio: &Bio) -> i32 {
        -i32::from(self.leave(at))
    }
}
