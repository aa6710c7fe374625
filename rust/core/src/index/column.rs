//! The bytes of an index's last column: the level, or the interval, of a vector's number.
//!
//! Scales have 256 levels that never change. Other numbers have intervals, which are fitted to the numbers: half of the
//! edges divide them into equal counts, so that a few outliers cost the others nothing, and half divide their range
//! evenly.
//!
//! **Runs.** Intervals are fitted to a run of vectors. A number outside widens the first or the last interval: that is
//! never wrong, but makes a loose bound. So if many of the numbers that are added lie outside, a new run begins, at a
//! multiple of 64 positions; the existing vectors keep their intervals. A run is closed only if it holds at least
//! [`SMALL`] vectors and 1/16 of all: so there are never more than about 16 ln(n / SMALL) + 1 runs, some 200 for 2³²
//! vectors. A run below [`SMALL`] is refitted each time it has doubled.

use crate::codes::packed::BLOCK;
use crate::scan::{Edges, Levels};
use std::ops::Range;

/// The smallest and largest scale that are represented; scales beyond them are clamped.
const SCALES: (f64, f64) = (0.25, 4.0);
/// Vectors up to which a run is refitted.
const SMALL: usize = 4096;
/// The most numbers that edges are computed from.
const SAMPLE: usize = 1 << 14;

/// The intervals of the vectors from one position up to the next run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    /// The position of its first vector, a multiple of 64.
    pub(crate) first: usize,
    pub(crate) edges: Box<Edges>,
    /// The number of vectors in the run when its edges were fitted.
    laid: usize,
}

impl Run {
    /// Fits the intervals to `numbers`, none of which is NaN.
    fn new(first: usize, numbers: &[f32]) -> Self {
        let mut run = Self { first, edges: Box::new([0.0; 257]), laid: numbers.len() };
        let Some(&number) = numbers.first() else { return run };
        let mut sample: Vec<f32> =
            numbers.iter().copied().step_by(numbers.len().div_ceil(SAMPLE).max(1)).collect();
        sample.sort_unstable_by(f32::total_cmp);
        let (least, most) = numbers.iter().fold((number, number), |(a, b), &x| (a.min(x), b.max(x)));
        for (i, edge) in run.edges.iter_mut().enumerate() {
            let share = (i / 2) as f64 / 128.0;
            *edge = if i % 2 == 0 {
                sample[(share * (sample.len() - 1) as f64) as usize]
            } else {
                between(least, most, share + 1.0 / 256.0)
            };
        }
        run.edges.sort_unstable_by(f32::total_cmp);
        (run.edges[0], run.edges[256]) = (least, most);
        run
    }

    /// Sets the number of vectors that the edges were fitted to.
    pub(super) fn for_all(self, laid: usize) -> Self {
        Self { laid, ..self }
    }

    /// A run that was read from a file: `edges` ascend.
    pub(crate) fn stored(first: usize, edges: Box<Edges>) -> Self {
        Self { first, edges, laid: SMALL }
    }

    fn is_outside(&self, number: f32) -> bool {
        number < self.edges[0] || number > self.edges[256]
    }

    /// The bytes of some numbers; the outermost intervals are widened where needed.
    fn bytes(&mut self, numbers: &[f32]) -> Vec<u8> {
        for &number in numbers {
            self.edges[0] = self.edges[0].min(number);
            self.edges[256] = self.edges[256].max(number);
        }
        let inner = &self.edges[1..256];
        numbers.iter().map(|&number| inner.partition_point(|&edge| edge < number) as u8).collect()
    }
}

/// The point at a given share of the way from a to b: for positive numbers far apart, on a logarithmic scale.
fn between(a: f32, b: f32, share: f64) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let value = if a > 0.0 && b > 2.0 * a { a * (b / a).powf(share) } else { a + share * (b - a) };
    (value as f32).clamp(a as f32, b as f32)
}

/// The meaning of the bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column {
    /// The levels of scales.
    Levels(Box<Levels>),
    /// Runs of intervals of other numbers; the first run begins at 0.
    Runs(Vec<Run>),
}

impl Column {
    /// Levels for scales, evenly spaced in the logarithm.
    pub(super) fn scales() -> Self {
        let level = |i: usize| SCALES.0 * (SCALES.1 / SCALES.0).powf(i as f64 / 255.0);
        Column::Levels(Box::new(std::array::from_fn(|i| level(i) as f32)))
    }

    /// No runs, for an index without vectors.
    pub(super) fn runs() -> Self {
        Column::Runs(Vec::new())
    }

    /// The bytes of the numbers of vectors `len ..`, and of some before them if a small run is refitted: returns the
    /// first position, and the bytes from there on. `old` gives the numbers of existing vectors.
    pub(super) fn extend(
        &mut self,
        len: usize,
        new: &[f32],
        old: impl Fn(Range<usize>) -> Vec<f32>,
    ) -> (usize, Vec<u8>) {
        let runs = match self {
            Column::Levels(levels) => return (len, nearest(levels, new)),
            Column::Runs(runs) => runs,
        };
        let Some(last) = runs.last_mut() else {
            runs.push(Run::new(0, new));
            return (0, runs[0].bytes(new));
        };
        let held = len - last.first;
        if held < SMALL && held + new.len() >= 2 * last.laid.min(held) {
            // With so few vectors, the new ones may be used to refit the run.
            let (first, mut numbers) = (last.first, old(last.first..len));
            numbers.extend_from_slice(new);
            *last = Run::new(first, &numbers);
            return (first, last.bytes(&numbers));
        }
        let outside = new.iter().filter(|&&number| last.is_outside(number)).count();
        let head = (len.next_multiple_of(BLOCK) - len).min(new.len());
        let (mut bytes, rest) = (Vec::new(), &new[head..]);
        if held >= SMALL && held >= len / 16 && outside > new.len() / 8 && !rest.is_empty() {
            bytes.extend(last.bytes(&new[..head]));
            let mut run = Run::new(len + head, rest);
            bytes.extend(run.bytes(rest));
            runs.push(run);
        } else {
            bytes = last.bytes(new);
        }
        (len, bytes)
    }

    /// The bytes of the numbers of `new` vectors that join `len` others, in a single run that holds both in any order.
    /// `None` if the run should be [refitted](Self::laid) for all of them: they are twice as many as before, or many
    /// lie outside.
    pub(super) fn mix(&mut self, len: usize, new: &[f32]) -> Option<Vec<u8>> {
        match self {
            Column::Levels(levels) => Some(nearest(levels, new)),
            Column::Runs(runs) => {
                let run = runs.first_mut()?;
                let outside = new.iter().filter(|&&number| run.is_outside(number)).count();
                let is_due = len + new.len() >= 2 * run.laid || outside > len / 16;
                (!is_due).then(|| run.bytes(new))
            }
        }
    }

    /// A single run fitted to all numbers, and their bytes.
    pub(super) fn laid(numbers: &[f32]) -> (Self, Vec<u8>) {
        let mut run = Run::new(0, numbers);
        let bytes = run.bytes(numbers);
        (Column::Runs(vec![run]), bytes)
    }

    /// The bytes of the numbers of the vectors at `positions`, out of `len`, which replace others; and those of all
    /// vectors of the runs that many of the new numbers lie outside of, which are refitted: the run's first position,
    /// and the bytes. `old` gives the existing numbers.
    pub(super) fn replace(
        &mut self,
        len: usize,
        positions: &[usize],
        new: &[f32],
        old: impl Fn(Range<usize>) -> Vec<f32>,
    ) -> (Vec<u8>, Vec<(usize, Vec<u8>)>) {
        let runs = match self {
            Column::Levels(levels) => return (nearest(levels, new), Vec::new()),
            Column::Runs(runs) => runs,
        };
        let mut of_run = vec![Vec::new(); runs.len()];
        for (i, position) in positions.iter().enumerate() {
            of_run[runs.partition_point(|run| run.first <= *position) - 1].push(i);
        }
        let (mut bytes, mut relaid) = (vec![0; new.len()], Vec::new());
        let ends: Vec<usize> = runs.iter().skip(1).map(|run| run.first).chain([len]).collect();
        for ((run, end), replaced) in runs.iter_mut().zip(ends).zip(of_run) {
            let outside = replaced.iter().filter(|&&i| run.is_outside(new[i])).count();
            if outside > (end - run.first) / 8 {
                let mut numbers = old(run.first..end);
                replaced.iter().for_each(|&i| numbers[positions[i] - run.first] = new[i]);
                *run = Run::new(run.first, &numbers);
                let all = run.bytes(&numbers);
                replaced.iter().for_each(|&i| bytes[i] = all[positions[i] - run.first]);
                relaid.push((run.first, all));
            } else {
                replaced.iter().for_each(|&i| bytes[i] = run.bytes(&[new[i]])[0]);
            }
        }
        (bytes, relaid)
    }

    /// What remains of the column if the vectors at `positions`, ascending, are kept, and the bytes that change: their
    /// new position and byte. `number` gives the number of a vector by its old position.
    pub(super) fn select(
        &self,
        positions: &[usize],
        number: impl Fn(usize) -> f32,
    ) -> (Option<Self>, Vec<(usize, u8)>) {
        let runs = match self {
            Column::Levels(_) => return (Some(self.clone()), Vec::new()),
            Column::Runs(_) if positions.is_empty() => return (None, Vec::new()),
            Column::Runs(runs) => runs,
        };
        let (mut kept, mut changed): (Vec<Run>, _) = (Vec::new(), Vec::new());
        for (i, run) in runs.iter().enumerate() {
            let start = positions.partition_point(|&position| position < run.first);
            let end = runs
                .get(i + 1)
                .map_or(positions.len(), |next| positions.partition_point(|&position| position < next.first));
            // A run begins with a whole block: the vectors before that join the previous run.
            let first = if kept.is_empty() { start } else { start.next_multiple_of(BLOCK).min(end) };
            if let Some(before) = kept.last_mut() {
                for (at, &position) in (start..first).zip(&positions[start..first]) {
                    changed.push((at, before.bytes(&[number(position)])[0]));
                }
            }
            if first < end {
                kept.push(Run { first, edges: run.edges.clone(), laid: SMALL });
            }
        }
        (Some(Column::Runs(kept)), changed)
    }

    /// The runs, with the positions where they begin.
    pub(crate) fn as_runs(&self) -> &[Run] {
        match self {
            Column::Levels(_) => &[],
            Column::Runs(runs) => runs,
        }
    }

    /// The levels of scales.
    pub(crate) fn as_levels(&self) -> Option<&Levels> {
        match self {
            Column::Levels(levels) => Some(levels),
            Column::Runs(_) => None,
        }
    }
}

/// The index of the level nearest to each value; the levels ascend.
fn nearest(levels: &Levels, values: &[f32]) -> Vec<u8> {
    let nearest = |&value: &f32| {
        let above = levels.partition_point(|&level| level < value).min(255);
        let is_below_nearer = above > 0 && value - levels[above - 1] < levels[above] - value;
        (above - usize::from(is_below_nearer)) as u8
    };
    values.iter().map(nearest).collect()
}

/// The edges that correspond to the levels of earlier versions.
pub(super) mod former {
    use crate::scan::{Edges, Levels};

    /// Edges for versions where a level is the lowest that is not below the number, and the lowest of all is not above
    /// it.
    pub(crate) fn above(levels: &Levels) -> Box<Edges> {
        let mut edges = Box::new([levels[0]; 257]);
        edges[1..].copy_from_slice(levels);
        edges
    }

    /// Edges for versions where a level is the nearest one. 1 / ‖x̄‖ was kept between 2⁻⁵⁹ and 2⁵⁹.
    pub(crate) fn nearest(levels: &Levels) -> Box<Edges> {
        let mut edges = Box::new([0.0; 257]);
        for (edge, pair) in edges[1..].iter_mut().zip(levels.windows(2)) {
            *edge = ((f64::from(pair[0]) + f64::from(pair[1])) / 2.0) as f32;
        }
        edges[0] = if levels[0] < 2f32.powi(-58) { f32::MIN_POSITIVE } else { levels[0] };
        edges[256] = if levels[255] > 2f32.powi(58) { f32::MAX } else { levels[255] };
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether, after some additions and a removal, the bytes of all vectors name the right intervals.
    fn holds(column: &Column, bytes: &[u8], numbers: &[f32]) -> bool {
        let runs = column.as_runs();
        numbers.iter().zip(bytes).enumerate().all(|(position, (number, &byte))| {
            let run = runs.iter().rfind(|run| run.first <= position).unwrap();
            (run.edges[usize::from(byte)]..=run.edges[usize::from(byte) + 1]).contains(number)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_number_is_in_its_interval(
            pieces in prop::collection::vec((0..9000usize, -20..20i32), 1..6), keep in 1..5usize, seed in any::<u32>(),
        ) {
            let mut state = seed;
            let mut unit = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 24) as f32
            };
            let (mut column, mut bytes, mut all) = (Column::runs(), Vec::new(), Vec::<f32>::new());
            for (n, exponent) in pieces {
                let new: Vec<f32> = (0..n).map(|_| (0.5 - unit()) * 2f32.powi(exponent)).collect();
                let (from, changed) = column.extend(all.len(), &new, |range| all[range].to_vec());
                bytes.truncate(from);
                bytes.extend(changed);
                all.extend(new);
                prop_assert_eq!(bytes.len(), all.len());
                prop_assert!(holds(&column, &bytes, &all));
                prop_assert!(column.as_runs().iter().all(|run| run.first % BLOCK == 0 && run.edges.is_sorted()));
            }
            let replaced: Vec<usize> = (0..all.len()).rev().filter(|i| i * i % 7 < keep).collect();
            let new: Vec<f32> = replaced.iter().map(|i| all[*i] * if i % 3 == 0 { 9.0 } else { 0.5 }).collect();
            if !all.is_empty() {
                let (changed, relaid) = column.replace(all.len(), &replaced, &new, |range| all[range].to_vec());
                for (&position, (&number, byte)) in replaced.iter().zip(new.iter().zip(changed)) {
                    (all[position], bytes[position]) = (number, byte);
                }
                for (first, changed) in relaid {
                    bytes[first..first + changed.len()].copy_from_slice(&changed);
                }
                prop_assert!(holds(&column, &bytes, &all));
            }
            let positions: Vec<usize> = (0..all.len()).filter(|i| i * i % 5 < keep).collect();
            let (column, changed) = column.select(&positions, |position| all[position]);
            let mut bytes: Vec<u8> = positions.iter().map(|&position| bytes[position]).collect();
            changed.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            let all: Vec<f32> = positions.iter().map(|&position| all[position]).collect();
            prop_assert_eq!(column.is_none(), all.is_empty());
            prop_assert!(column.is_none_or(|column| holds(&column, &bytes, &all)));
        }
    }

    #[test]
    fn a_few_far_numbers_leave_the_others_their_intervals() {
        let mut numbers: Vec<f32> = (0..20_000).map(|i| 1.0 + i as f32 / 2e4).collect();
        numbers.extend([f32::MAX, 1e-30]);
        let mut run = Run::new(0, &numbers);
        let bytes = run.bytes(&numbers);
        for (number, byte) in numbers.into_iter().zip(bytes).take(20_000) {
            let width = run.edges[usize::from(byte) + 1] - run.edges[usize::from(byte)];
            assert!(width < 0.02 || !(1.01..=1.99).contains(&number), "{number} {width}");
        }
    }

    #[test]
    fn runs_are_few_however_numbers_grow() {
        let (mut column, mut len) = (Column::runs(), 0);
        for i in 0..3000 {
            let new = vec![1.02f32.powi(i); 1 + i as usize * 37 % 400];
            let (from, bytes) = column.extend(len, &new, |range| vec![0.0; range.len()]);
            assert!(from >= column.as_runs().last().unwrap().first.min(len));
            assert_eq!(from + bytes.len(), len + new.len());
            len += new.len();
        }
        let n_runs = column.as_runs().len();
        assert!((3..100).contains(&n_runs), "{n_runs} runs of {len}");
    }

    #[test]
    fn scales_have_the_nearest_level() {
        let Column::Levels(levels) = Column::scales() else { unreachable!("as said") };
        for (i, &level) in levels.iter().enumerate() {
            assert_eq!(nearest(&levels, &[level * 1.004, level * 0.996]), [i as u8; 2]);
        }
        assert_eq!(nearest(&levels, &[0.0, 1e9]), [0, 255]);
    }
}
