//! The first codebook of a model whose index is divided into lists: its codeword is identified by the list that a
//! vector is in, not by a code.

use super::Loss;
use super::lists::ListFinder;
use crate::codebooks::Codebooks;
use crate::error::{Error, Result, argument};
use crate::monitor::Monitor;
use crate::vectors::metric::Metric;
use crate::vectors::unit::Unit;
use crate::vectors::{Subset, Vectors};
use ndarray::{Array2, ArrayView2};

/// The most lists: with more, the scores of a thread would take more memory than the codes.
pub const MAX_LISTS: usize = 1 << 20;

/// A number of lists searched, and the share of the nearest vectors that they hold.
pub type Reached = (usize, f32);
/// How far below the best lists a list may score to be searched, and the share of the nearest vectors that such lists
/// hold.
pub type Gap = (f32, f32);

/// One centroid per list: x ≈ centroid + Σ codewords; or x ≈ Σ codewords, see [`of_whole`](Self::of_whole).
#[derive(Clone, Debug, PartialEq)]
pub struct Centroids {
    data: Array2<f32>,
    loss: Loss,
    bonuses: Vec<f32>,
    shares: Vec<f32>,
    reach: Vec<Reached>,
    gaps: Vec<Gap>,
    by_residual: bool,
}

impl Centroids {
    /// Takes the centroids (`n_lists`, d).
    ///
    /// # Errors
    /// There are none or more than [`MAX_LISTS`], or a value is not finite.
    pub fn new(data: Array2<f32>) -> Result<Self> {
        let (n, d) = data.dim();
        if !(1..=MAX_LISTS).contains(&n) || d == 0 {
            return Err(argument!(
                "centroids",
                "have shape ({n}, {d}): want 1 to {MAX_LISTS} of at least 1 dimension"
            ));
        }
        let data = data.as_standard_layout().into_owned();
        if let Some(at) = data.iter().position(|value| !value.is_finite()) {
            return Err(argument!("centroids", "[{}] holds NaN or an infinity", at / d));
        }
        Ok(Self {
            data,
            loss: Loss::RECONSTRUCTION,
            bonuses: vec![0.0; n],
            shares: vec![1.0 / n as f32; n],
            reach: Vec::new(),
            gaps: Vec::new(),
            by_residual: true,
        })
    }

    /// Assigns vectors to the list of least `loss`; the default is the squared error.
    #[must_use]
    pub fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// Makes the codes encode whole vectors rather than their residuals: the centroids determine which list a vector is
    /// in, and which lists are best for a query, but are not part of the approximation.
    #[must_use]
    pub fn of_whole(self) -> Self {
        Self { by_residual: false, ..self }
    }

    /// Adds ‖q‖ times entry l of `bonuses` to ⟨q, centroid l⟩ when the lists of a query q are chosen: the vectors of a
    /// list that spreads far from its centroid may score far above it.
    ///
    /// # Errors
    /// `bonuses` is not one finite number per list.
    pub fn with_bonuses(mut self, bonuses: Vec<f32>) -> Result<Self> {
        if bonuses.len() != self.n_lists() || bonuses.iter().any(|bonus| !bonus.is_finite()) {
            return Err(argument!("bonuses", "are {}: want {} finite ones", bonuses.len(), self.n_lists()));
        }
        self.bonuses = bonuses;
        Ok(self)
    }

    /// Sets the share of the training vectors that each list held, from which an index measures how its lists have
    /// drifted.
    ///
    /// # Errors
    /// `shares` is not one number from 0 to 1 per list.
    pub fn with_shares(mut self, shares: Vec<f32>) -> Result<Self> {
        if shares.len() != self.n_lists() || !shares.iter().all(|share| (0.0..=1.0).contains(share)) {
            return Err(argument!("shares", "are {}: want {} from 0 to 1", shares.len(), self.n_lists()));
        }
        self.shares = shares;
        Ok(self)
    }

    /// Sets the share of the nearest vectors that the best lists of a query hold, measured for several numbers of
    /// lists.
    ///
    /// # Errors
    /// The numbers are not ascending from 1 to the number of lists, or the shares are not ascending from 0 to 1.
    pub fn with_reach(mut self, reach: Vec<Reached>) -> Result<Self> {
        let ascends = reach.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
        let lists = 1..=self.n_lists();
        let fits = |(n, share): &Reached| lists.contains(n) && (0.0..=1.0).contains(share);
        if !ascends || !reach.iter().all(fits) {
            return Err(argument!("reach", "is {reach:?}: want ascending numbers of lists and shares"));
        }
        self.reach = reach;
        Ok(self)
    }

    /// Sets the share of the nearest vectors in the lists that score at most a *gap* below the mean of a query's five
    /// best, measured for several gaps. A gap is a multiple of ‖q‖ among inner products and cosines, and a difference of
    /// −½‖q − centroid‖² among distances.
    ///
    /// # Errors
    /// The gaps are not finite and ascending, or the shares are not ascending from 0 to 1.
    pub fn with_gaps(mut self, gaps: Vec<Gap>) -> Result<Self> {
        let ascends = gaps.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1);
        let fits = |(gap, share): &Gap| gap.is_finite() && (0.0..=1.0).contains(share);
        if !ascends || !gaps.iter().all(fits) {
            return Err(argument!("gaps", "are {gaps:?}: want ascending finite numbers and shares"));
        }
        self.gaps = gaps;
        Ok(self)
    }

    /// The number of lists.
    #[must_use]
    pub fn n_lists(&self) -> usize {
        self.data.nrows()
    }

    /// The length of the vectors, d.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.data.ncols()
    }

    /// All centroids, (`n_lists`, d).
    #[must_use]
    pub fn view(&self) -> ArrayView2<'_, f32> {
        self.data.view()
    }

    /// The centroid of list `list`.
    #[must_use]
    pub fn centroid(&self, list: usize) -> &[f32] {
        &self.as_slice()[list * self.dim()..][..self.dim()]
    }

    /// All numbers, centroid by centroid.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        self.data.as_slice().expect("standard layout by construction")
    }

    /// The loss by which vectors are assigned to lists.
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Whether the approximation of a vector starts from the centroid of its list, which is the default.
    #[must_use]
    pub fn by_residual(&self) -> bool {
        self.by_residual
    }

    /// See [`with_bonuses`](Self::with_bonuses).
    #[must_use]
    pub fn bonuses(&self) -> &[f32] {
        &self.bonuses
    }

    /// The share of the training vectors that each list held.
    #[must_use]
    pub fn shares(&self) -> &[f32] {
        &self.shares
    }

    /// See [`with_reach`](Self::with_reach).
    #[must_use]
    pub fn reach(&self) -> &[Reached] {
        &self.reach
    }

    /// See [`with_gaps`](Self::with_gaps).
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// The gap so that the lists of a query hold `recall` of the nearest vectors; `None` if it was not measured, or no
    /// gap was found to suffice.
    #[must_use]
    pub fn gap_for(&self, recall: f32) -> Option<f32> {
        let at = self.gaps.iter().position(|&(_, share)| share >= recall).filter(|_| recall < 1.0)?;
        let (gap, share) = self.gaps[at];
        let Some((before, low)) = at.checked_sub(1).map(|at| self.gaps[at]) else { return Some(gap) };
        Some(before + (gap - before) * (recall - low) / (share - low))
    }

    /// How many lists to search so that they hold `recall` of the nearest vectors; all lists if no smaller number was
    /// found to suffice.
    #[must_use]
    pub fn probes_for(&self, recall: f32) -> usize {
        if recall >= 1.0 {
            // With few samples, all of their nearest vectors may be in a part of the lists; this need not hold for
            // other queries.
            return self.n_lists();
        }
        let enough = self.reach.iter().position(|&(_, share)| share >= recall);
        match enough {
            None if self.reach.is_empty() => self.n_lists().div_ceil(16).max(8.min(self.n_lists())),
            None => self.n_lists(),
            Some(at) => {
                // Linear interpolation between two measured points.
                let (n, share) = self.reach[at];
                let (before, low) = at.checked_sub(1).map_or((0, 0.0), |at| self.reach[at]);
                let part = if share > low { (recall - low) / (share - low) } else { 1.0 };
                let n = before + ((n - before) as f32 * part.clamp(0.0, 1.0)).ceil() as usize;
                n.clamp(1, self.n_lists())
            }
        }
    }

    /// Rejects centroids that do not fit `codebooks`.
    ///
    /// # Errors
    /// They have a different d.
    pub fn check(&self, codebooks: &Codebooks) -> Result<()> {
        if self.dim() != codebooks.dim() {
            let (have, want) = (self.dim(), codebooks.dim());
            return Err(argument!("centroids", "have {have} dimensions, the codebooks have {want}"));
        }
        Ok(())
    }

    /// Rejects `lists` that do not name one of these lists for each of `n` vectors.
    ///
    /// # Errors
    /// `lists` has not `n` entries, or one is not below the number of lists.
    pub fn check_lists(&self, lists: &[u32], n: usize) -> Result<()> {
        if lists.len() != n {
            return Err(argument!("lists", "has {} entries for {n} vectors", lists.len()));
        }
        match lists.iter().position(|&list| list as usize >= self.n_lists()) {
            Some(row) => Err(argument!("lists", "[{row}] is {}: want below {}", lists[row], self.n_lists())),
            None => Ok(()),
        }
    }

    /// Calls `f` with the centroid of each of these lists, as vectors.
    pub(crate) fn with_bases<R>(&self, lists: &[u32], f: impl FnOnce(&dyn Vectors) -> R) -> R {
        let rows: Vec<usize> = lists.iter().map(|&list| list as usize).collect();
        f(&Subset::new(&self.view(), &rows))
    }

    /// The list of each row of `x` (n, d), which is the one whose centroid has the least loss. If `metric`, which the
    /// model was trained for, is the cosine, the rows are scaled to length 1 first.
    ///
    /// # Errors
    /// A different d, a row that is not finite, or the monitor cancels.
    pub fn assign(&self, x: &dyn Vectors, metric: Option<Metric>, monitor: &dyn Monitor) -> Result<Vec<u32>> {
        let found = match metric {
            Some(Metric::Cosine) => self.nearest(&Unit(x), monitor),
            _ => self.nearest(x, monitor),
        };
        found.map(|(lists, _)| lists)
    }

    /// Like [`assign`](Self::assign), but takes vectors as they are, and also returns the loss of each.
    ///
    /// # Errors
    /// The errors of [`assign`](Self::assign).
    pub fn nearest(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<(Vec<u32>, Vec<f32>)> {
        ListFinder::new(self.view(), self.loss)?.find(x, monitor)
    }
}

/// Rejects lists if the model has no centroids, and requires them if it has.
pub(crate) fn checked<'a>(
    centroids: Option<&Centroids>,
    lists: Option<&'a [u32]>,
    n: usize,
) -> Result<Option<&'a [u32]>> {
    match (centroids, lists) {
        (None, None) => Ok(None),
        (Some(centroids), Some(lists)) => centroids.check_lists(lists, n).map(|()| Some(lists)),
        (None, Some(_)) => Err(argument!("lists", "are given, but the model has no centroids")),
        (Some(_), None) => Err(missing()),
    }
}

fn missing() -> Error {
    argument!("lists", "are missing: the model has centroids, so want the list of each vector")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_list_of_least_loss_is_chosen() {
        let centroids = Centroids::new(array![[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]]).unwrap();
        let x = array![[1.9f32, 0.0], [2.1, 0.0], [2.6, 2.2]];
        let lists = |centroids: &Centroids| centroids.assign(&x.view(), None, &()).unwrap();
        assert_eq!(lists(&centroids), [0, 1, 1]);
        // For (2.6, 2.2), the error along the vector is smaller from (0, 3).
        let centroids = centroids.with_loss(Loss::inner_product(50.0).unwrap());
        let brute = |x: &[f32; 2]| {
            let loss = |c: &[f32]| {
                let r = [f64::from(x[0] - c[0]), f64::from(x[1] - c[1])];
                let along = r[0] * f64::from(x[0]) + r[1] * f64::from(x[1]);
                r[0] * r[0] + r[1] * r[1] + 49.0 * along * along / f64::from(x[0] * x[0] + x[1] * x[1])
            };
            (0..3)
                .min_by(|&a, &b| loss(centroids.centroid(a)).total_cmp(&loss(centroids.centroid(b))))
                .unwrap()
        };
        let want: Vec<u32> = x.as_slice().unwrap().as_chunks().0.iter().map(|x| brute(x) as u32).collect();
        assert_eq!(lists(&centroids), want);
    }

    #[test]
    fn gaps_follow_what_was_measured() {
        let centroids = Centroids::new(Array2::zeros((100, 1))).unwrap();
        assert_eq!(centroids.gap_for(0.9), None);
        let centroids = centroids.with_gaps(vec![(-1.0, 0.5), (2.0, 0.75), (6.0, 0.875)]).unwrap();
        let gaps = [0.1, 0.5, 0.625, 0.75, 0.8125, 0.875].map(|recall| centroids.gap_for(recall).unwrap());
        assert_eq!(gaps, [-1.0, -1.0, 0.5, 2.0, 4.0, 6.0]);
        assert_eq!((centroids.gap_for(0.9), centroids.gap_for(1.0)), (None, None));
        for refused in
            [vec![(2.0, 0.5), (1.0, 0.8)], vec![(f32::NAN, 0.5)], vec![(0.0, 1.5)], vec![(0.0, 0.5); 2]]
        {
            assert!(centroids.clone().with_gaps(refused).is_err());
        }
    }

    #[test]
    fn probes_follow_what_was_measured() {
        let centroids = Centroids::new(Array2::zeros((100, 1))).unwrap();
        assert_eq!((centroids.probes_for(0.9), centroids.probes_for(1.0)), (8, 100));
        let centroids = centroids.with_reach(vec![(1, 0.5), (4, 0.8), (16, 0.9)]).unwrap();
        let probes = [0.1, 0.5, 0.59, 0.8, 0.84, 0.9, 0.91].map(|recall| centroids.probes_for(recall));
        assert_eq!(probes, [1, 1, 2, 4, 9, 16, 100]);
        for refused in [vec![(4, 0.5), (1, 0.8)], vec![(0, 0.5)], vec![(101, 0.5)], vec![(1, 1.5)]] {
            assert!(centroids.clone().with_reach(refused).is_err());
        }
        let centroids = centroids.with_reach(vec![(1, 0.5), (4, 1.0)]).unwrap();
        assert_eq!((centroids.probes_for(0.999), centroids.probes_for(1.0)), (4, 100));
    }
}
