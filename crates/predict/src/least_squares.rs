//! Least squares over the calls or requests of a trace, in memory that does not grow with it.

/// Sums over samples, of `N` amounts each, with a measured value `y`.
#[derive(Clone, Debug)]
pub struct Sums<const N: usize> {
    pub n: f64,
    pub y: f64,
    pub yy: f64,
    pub xy: [f64; N],
    pub xx: [[f64; N]; N],
}

impl<const N: usize> Default for Sums<N> {
    fn default() -> Sums<N> {
        Sums { n: 0.0, y: 0.0, yy: 0.0, xy: [0.0; N], xx: [[0.0; N]; N] }
    }
}

impl<const N: usize> Sums<N> {
    pub fn add(&mut self, x: [f64; N], y: f64) {
        self.n += 1.0;
        self.y += y;
        self.yy += y * y;
        for i in 0..N {
            self.xy[i] += x[i] * y;
            for k in 0..N {
                self.xx[i][k] += x[i] * x[k];
            }
        }
    }
}

impl Sums<2> {
    pub fn spread(&self) -> f64 {
        self.xx[0][0] * self.xx[1][1] - self.xx[0][1] * self.xx[0][1]
    }

    /// The cost of each of the two amounts. `None`: they were in the same proportion in all samples.
    pub fn solve(&self) -> Option<[f64; 2]> {
        let (Sums { xx, xy, .. }, spread) = (self, self.spread());
        let first = (xx[1][1] * xy[0] - xx[0][1] * xy[1]) / spread;
        let second = (xx[0][0] * xy[1] - xx[0][1] * xy[0]) / spread;
        (spread > f64::EPSILON * xx[0][0] * xx[1][1]).then_some([first, second])
    }
}
