//! The confidence interval of a difference of means (Welch, "The generalization of 'Student's' problem when several different
//! population variances are involved", Biometrika 34, 1947).

use statrs::distribution::{ContinuousCDF, StudentsT};

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Variance of the mean.
fn squared_error(values: &[f64]) -> f64 {
    let mean = mean(values);
    let n = values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) / n
}

/// 95 % confidence interval of mean(after) − mean(before); `None` with fewer than two values on a side.
pub fn difference(before: &[f64], after: &[f64]) -> Option<(f64, f64)> {
    if before.len() < 2 || after.len() < 2 {
        return None;
    }
    let change = mean(after) - mean(before);
    let (a, b) = (squared_error(before), squared_error(after));
    if a + b == 0.0 {
        // Runs without any variation, as on a virtual board.
        return Some((change, change));
    }
    let degrees = (a + b).powi(2) / (a.powi(2) / (before.len() as f64 - 1.0) + b.powi(2) / (after.len() as f64 - 1.0));
    let t = StudentsT::new(0.0, 1.0, degrees).ok()?.inverse_cdf(0.975);
    let half = t * (a + b).sqrt();
    Some((change - half, change + half))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_that_of_the_tables() {
        // Equal variances and sizes of 3: 4 degrees of freedom, t = 2.776 (two-sided 95 %), squared errors 1/3 each.
        let (from, to) = difference(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]).unwrap();
        let half = 2.776 * (2.0_f64 / 3.0).sqrt();
        assert!((from - (10.0 - half)).abs() < 1e-3 && (to - (10.0 + half)).abs() < 1e-3, "{from} {to}");
        assert_eq!(difference(&[1.0], &[2.0, 3.0]), None);
        assert_eq!(difference(&[2.0, 2.0], &[5.0, 5.0]), Some((3.0, 3.0)));
    }
}
