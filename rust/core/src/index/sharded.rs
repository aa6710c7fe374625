//! Several indexes of one model searched as one: the shards of a database, each in a file of its own.
//!
//! A search sees the vectors of all shards one after the other: its tables, its top-k and its floor are shared, and of
//! equal scores the vector of the earlier shard comes first. So the results are those of one index with all vectors in
//! that order, to the last bit.

use super::candidates::Candidates;
use super::measure::{self, Exact};
use super::search::{BATCH, Scored, beyond, check_finite};
use super::{Index, filter};
use crate::codes::packed::BLOCK;
use crate::error::{Result, invalid};
use crate::isa::Isa;
use crate::monitor::Monitor;
use crate::scan::{self, Hits, Measure, Probes, Segment};
use crate::vectors::metric::Metric;
use ndarray::{Array2, ArrayView2, Axis, s};
use std::sync::Arc;

/// An index that is part of a larger one.
#[derive(Clone)]
pub struct Shard {
    index: Arc<Index>,
    /// What its ids have to be raised by.
    offset: i64,
    /// A bit for each position that is not removed; `None` where all are there.
    live: Option<Vec<u64>>,
    n_live: usize,
}

impl Shard {
    /// The vectors of `index` but for those at the positions `removed`, each with its id raised by `offset`.
    ///
    /// # Errors
    /// A position that the index has not, a negative `offset`, or one that makes ids too large.
    pub fn new(index: Arc<Index>, offset: i64, removed: &[i64]) -> Result<Self> {
        let n = index.len();
        let largest = (i64::MAX as u64).checked_sub(index.next_id().saturating_sub(1));
        if !u64::try_from(offset).is_ok_and(|offset| largest.is_some_and(|largest| offset <= largest)) {
            return Err(invalid!("the first id is {offset}: want at least 0, and ids of at most 2⁶³ − 1"));
        }
        let mut live = (!removed.is_empty()).then(|| vec![u64::MAX; n.div_ceil(BLOCK)]);
        for &position in removed {
            let position = usize::try_from(position).ok().filter(|&position| position < n);
            let position =
                position.ok_or_else(|| invalid!("a removed vector is not one of the shard's {n}"))?;
            if let Some(live) = &mut live {
                live[position / BLOCK] &= !(1 << (position % BLOCK));
            }
        }
        if let (Some(live), tail) = (&mut live, n % BLOCK)
            && tail > 0
            && let Some(last) = live.last_mut()
        {
            *last &= (1 << tail) - 1;
        }
        let count = |live: &Vec<u64>| live.iter().map(|word| word.count_ones() as usize).sum();
        let n_live = live.as_ref().map_or(n, count);
        Ok(Self { index, offset, live, n_live })
    }

    fn is_live(&self, position: usize) -> bool {
        self.live.as_ref().is_none_or(|live| live[position / BLOCK] >> (position % BLOCK) & 1 == 1)
    }
}

/// Which vectors a search may find.
#[derive(Clone, Copy, Debug)]
pub enum Allow<'a> {
    /// All.
    Everything,
    /// Those with these ids.
    Ids(&'a [i64]),
    /// The ids of a range: its first, its last, and the step.
    Range(i64, i64, u64),
    /// Of each shard the positions where its mask is true.
    Masks(&'a [Vec<bool>]),
}

/// Shards that are searched as one.
pub struct Shards {
    shards: Vec<Shard>,
    /// The vectors before each shard, removed ones too; and all.
    starts: Vec<usize>,
}

impl Shards {
    /// Shards in the order in which their vectors count. Where only some of them store half-byte codes in pairs, the codes of
    /// the others, which files of earlier versions hold, are copied into memory.
    ///
    /// # Errors
    /// There are none, they differ in codebooks or settings, they have lists, or codes to be copied are damaged.
    pub fn new(mut shards: Vec<Shard>) -> Result<Self> {
        let Some(first) = shards.first() else {
            return Err(invalid!("there are no shards: want at least one"));
        };
        if shards.iter().any(|shard| shard.index.model.centroids.is_some()) {
            return Err(invalid!("the shards have lists: want those of a model without"));
        }
        let mut starts = vec![0];
        for (i, shard) in shards.iter().enumerate() {
            let (one, index) = (&first.index, &shard.index);
            if index.model.codebooks.view() != one.model.codebooks.view() {
                return Err(invalid!("shard {i} has other codebooks than the first"));
            }
            if index.settings != one.settings || index.is_centred != one.is_centred {
                return Err(invalid!("shard {i} measures or keeps something else than the first"));
            }
            starts.push(starts[i] + index.len());
        }
        let layout = |shard: &Shard| shard.index.packed.view().layout();
        if shards.iter().any(|shard| layout(shard) != layout(&shards[0])) {
            for shard in &mut shards {
                if let Some(packed) = shard.index.packed_anew()? {
                    shard.index = Arc::new(packed);
                }
            }
        }
        Ok(Self { shards, starts })
    }

    /// Number of vectors that are not removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.n_live).sum()
    }

    /// Whether there are no vectors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ids of all vectors that are not removed, in order.
    #[must_use]
    pub fn ids(&self) -> Vec<i64> {
        let of = |shard: &Shard| {
            let live = (0..shard.index.len()).filter(|&position| shard.is_live(position));
            live.map(|position| shard.index.ids.at(position) + shard.offset).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// The positions of the vectors with these ids, counted through all shards; −1 for those that are not there.
    ///
    /// # Errors
    /// A cancelling monitor.
    pub fn find(&self, ids: &[i64], monitor: &dyn Monitor) -> Result<Vec<i64>> {
        let mut found = vec![-1; ids.len()];
        for (shard, &start) in self.shards.iter().zip(&self.starts) {
            let own: Vec<i64> = ids.iter().map(|&id| if id < 0 { -1 } else { id - shard.offset }).collect();
            for (found, position) in found.iter_mut().zip(shard.index.ids.find(&own, monitor)?) {
                if let Some(position) = position.filter(|&position| shard.is_live(position)) {
                    *found = (start + position) as i64;
                }
            }
        }
        Ok(found)
    }

    /// The approximations of the vectors at positions counted through all shards, (n, d).
    ///
    /// # Errors
    /// There is no such position, or a cancelling monitor.
    pub fn reconstruct(&self, positions: &[i64], monitor: &dyn Monitor) -> Result<Array2<f32>> {
        let index = &self.shards[0].index;
        let mut codes = Array2::<u8>::zeros((positions.len(), index.n_codes()));
        for (mut code, &position) in codes.outer_iter_mut().zip(positions) {
            let (shard, at) = self.place(position)?;
            let packed = self.shards[shard].index.packed();
            code.iter_mut().zip(packed.codes(at)).for_each(|(code, kept)| *code = kept);
        }
        index.model.codebooks.decode(codes.view(), monitor)
    }

    /// The `k` best vectors for each query (nq, d): scores and positions counted through all shards.
    ///
    /// # Errors
    /// Those of [`Index::search`].
    pub fn search_positions(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allow: Allow<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let allowed = self.allowed(allow, monitor)?;
        let hits = self.scan(queries, k, &allowed, monitor)?;
        let is_beyond = |(&position, &score): (&i64, &f32)| position >= 0 && !score.is_finite();
        let rows = hits.positions.outer_iter().zip(hits.scores.outer_iter());
        let row =
            rows.into_iter().position(|(positions, scores)| positions.iter().zip(scores).any(is_beyond));
        match row {
            Some(row) if self.shards[0].index.settings.metric == Metric::Euclidean => {
                Err(measure::beyond(row))
            }
            Some(row) => Err(beyond(row)),
            None => Ok(hits),
        }
    }

    /// Like [`search_positions`](Self::search_positions), with ids in the place of positions.
    ///
    /// # Errors
    /// Those of [`Index::search`].
    pub fn search(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allow: Allow<'_>,
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let mut hits = self.search_positions(queries, k, allow, monitor)?;
        hits.positions.mapv_inplace(|position| self.id(position));
        Ok(hits)
    }

    /// The `n` best by code for each query, for exact scores by [`Candidates::rerank`]; and where each of the candidates'
    /// ids is, counted through all shards.
    ///
    /// # Errors
    /// Those of [`Index::search`].
    pub fn candidates(
        &self,
        queries: ArrayView2<'_, f32>,
        n: usize,
        allow: Allow<'_>,
        monitor: &dyn Monitor,
    ) -> Result<(Candidates, Vec<i64>)> {
        let hits = self.search_positions(queries, n.min(self.starts[self.shards.len()]), allow, monitor)?;
        Ok(self.named(hits.positions))
    }

    /// Candidates that were found elsewhere, by their positions counted through all shards, (nq, n) and −1 for none; and
    /// where each of the candidates' ids is.
    #[must_use]
    pub fn named(&self, positions: Array2<i64>) -> (Candidates, Vec<i64>) {
        Candidates::named(positions, None, self.shards[0].index.settings.metric, |position| self.id(position))
    }

    /// The id of the vector at a position; −1 stays.
    #[must_use]
    pub fn id(&self, position: i64) -> i64 {
        match self.place(position) {
            Ok((shard, at)) => self.shards[shard].index.ids.at(at) + self.shards[shard].offset,
            Err(_) => -1,
        }
    }

    /// The shard of a position, and the position in it.
    fn place(&self, position: i64) -> Result<(usize, usize)> {
        let n = self.starts[self.shards.len()];
        let place = usize::try_from(position).ok().filter(|&position| position < n);
        let place = place.ok_or_else(|| invalid!("there is no position {position} among {n}"))?;
        let shard = self.starts.partition_point(|&start| start <= place) - 1;
        Ok((shard, place - self.starts[shard]))
    }

    /// The bits of each shard; `None` where all of it may be found.
    fn allowed(&self, allow: Allow<'_>, monitor: &dyn Monitor) -> Result<Vec<Option<Vec<u64>>>> {
        if let Allow::Masks(masks) = allow
            && masks.len() != self.shards.len()
        {
            return Err(invalid!("there are {} masks for {} shards", masks.len(), self.shards.len()));
        }
        let bits = |(i, shard): (usize, &Shard)| {
            let index = &*shard.index;
            let bits = match allow {
                Allow::Everything => return Ok(shard.live.clone()),
                Allow::Ids(ids) => {
                    let among = filter::Among::new(ids, index.len());
                    index.allow(|id| among.contains(id + shard.offset), monitor)?
                }
                Allow::Range(first, last, step) => {
                    if step == 0 {
                        return Err(invalid!("the step of the range is 0: want at least 1"));
                    }
                    let is_in = |id: i64| {
                        (first..=last).contains(&id) && (step == 1 || id.abs_diff(first).is_multiple_of(step))
                    };
                    index.allow(|id| is_in(id + shard.offset), monitor)?
                }
                Allow::Masks(masks) => index.allow_mask(&masks[i], monitor)?,
            };
            let bits = bits.bits().unwrap_or_default();
            Ok(Some(match &shard.live {
                None => bits.to_vec(),
                Some(live) => bits.iter().zip(live).map(|(bits, live)| bits & live).collect(),
            }))
        };
        self.shards.iter().enumerate().map(bits).collect()
    }

    /// As [`Index::scan`], over the segments of all shards.
    fn scan(
        &self,
        queries: ArrayView2<'_, f32>,
        k: usize,
        allowed: &[Option<Vec<u64>>],
        monitor: &dyn Monitor,
    ) -> Result<Hits> {
        let isa = Isa::current()?;
        let mut hits = Hits::none(queries.nrows(), k, self.starts[self.shards.len()])?;
        let queries = queries.as_standard_layout();
        check_finite(&queries)?;
        let first_index = &*self.shards[0].index;
        let (frame, codebooks) = (&first_index.frame, &first_index.model.codebooks);
        let (metric, n) = (first_index.settings.metric, self.starts[self.shards.len()]);
        let total = (queries.nrows() * n) as u64;
        for (i, queries) in queries.axis_chunks_iter(Axis(0), BATCH).enumerate() {
            let first = i * BATCH;
            let before = (first * n) as u64;
            let within = |done, _| monitor.report(before + done, total).is_ok();
            let part = if first_index.side.follows_from_codes() && queries.ncols() == codebooks.dim() {
                let (exact, inputs) = Exact::new(frame, &first_index.model, metric, queries, first)?;
                let tables = frame.tables.tables(inputs.view(), isa)?;
                let segments = self.segments(allowed, Some(&exact));
                scan::search(&segments, Probes::All, &tables, k, isa, &within)?
            } else {
                let tables = frame.tables.tables(queries, isa)?;
                first_index.check_products(queries, &tables, first)?;
                scan::search(&self.segments(allowed, None), Probes::All, &tables, k, isa, &within)?
            };
            let rows = s![first..first + queries.nrows(), ..];
            hits.scores.slice_mut(rows).assign(&part.scores);
            hits.positions.slice_mut(rows).assign(&part.positions);
        }
        Ok(hits)
    }

    fn segments<'a>(
        &'a self,
        allowed: &'a [Option<Vec<u64>>],
        measure: Option<&'a dyn Measure>,
    ) -> Vec<Segment<'a>> {
        let of = |((shard, allowed), &start): ((&'a Shard, &'a Option<Vec<u64>>), &usize)| {
            let segments = shard.index.segments(allowed.as_deref(), Scored::Approximation, measure);
            segments
                .into_iter()
                .map(move |segment| Segment { first: segment.first + start as u64, ..segment })
        };
        self.shards.iter().zip(allowed).zip(&self.starts).flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebooks::{Codebooks, Selection};
    use crate::index::Settings;
    use crate::model::Model;
    use ndarray::Array3;

    /// Random codes with many ties.
    fn whole(settings: Settings, n: usize) -> Index {
        let books = Array3::from_shape_fn((3, 8, 4), |(m, k, j)| ((m * 7 + k * 5 + j * 3) % 5) as f32 - 2.0);
        let model = Model::new(Codebooks::new(books).unwrap(), Selection::Group);
        let mut index = Index::with(model, settings).unwrap();
        let codes = Array2::from_shape_fn((n, 3), |(i, m)| ((i * (m + 3) + i / 7) % 8) as u8);
        index.add_codes(codes.view(), None, None, &()).unwrap();
        index
    }

    fn cut(whole: &Index, at: &[usize]) -> Shards {
        let (codes, mut shards) = (whole.codes(), Vec::new());
        for pair in at.windows(2) {
            let mut index = Index::with(whole.model().clone(), whole.settings()).unwrap();
            index.add_codes(codes.slice(s![pair[0]..pair[1], ..]), None, None, &()).unwrap();
            shards.push(Shard::new(Arc::new(index), pair[0] as i64, &[]).unwrap());
        }
        Shards::new(shards).unwrap()
    }

    #[test]
    fn shards_are_searched_as_one_index_ties_and_all() {
        let queries = Array2::from_shape_fn((5, 4), |(i, j)| ((i * 3 + j) % 4) as f32 - 1.5);
        for metric in [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean] {
            let settings = Settings { metric, ..Settings::default() };
            let whole = whole(settings, 700);
            let shards = cut(&whole, &[0, 1, 1, 300, 300 + 64, 700]);
            for k in [1, 10, 699, 800] {
                let found = shards.search(queries.view(), k, Allow::Everything, &()).unwrap();
                assert_eq!(found, whole.search(queries.view(), k, None, &()).unwrap(), "{metric:?} {k}");
            }
            let allowed = whole.allow_range(30..=650, 7, &()).unwrap();
            let found = shards.search(queries.view(), 20, Allow::Range(30, 650, 7), &()).unwrap();
            assert_eq!(found, whole.search(queries.view(), 20, Some(&allowed), &()).unwrap());
            let ids = [1, 299, 300, 699, 5000];
            let allowed = whole.allow_ids(&ids, &()).unwrap();
            let found = shards.search(queries.view(), 20, Allow::Ids(&ids), &()).unwrap();
            assert_eq!(found, whole.search(queries.view(), 20, Some(&allowed), &()).unwrap());
        }
    }

    #[test]
    fn what_is_removed_is_not_found() {
        let mut whole = whole(Settings::default(), 200);
        let queries = Array2::ones((2, 4));
        let shards = cut(&whole, &[0, 70, 200]);
        let removed = [[3, 64, 69], [0, 64, 129]];
        let pruned = shards.shards.iter().zip(&removed);
        let pruned = pruned.map(|(s, gone)| Shard::new(s.index.clone(), s.offset, gone).unwrap()).collect();
        let pruned = Shards::new(pruned).unwrap();
        let gone = [3, 64, 69, 70, 134, 199];
        assert_eq!(pruned.find(&gone, &()).unwrap(), [-1; 6]);
        assert_eq!(pruned.find(&[4, 198], &()).unwrap(), [4, 198]);
        whole.remove(&gone, &()).unwrap();
        let found = pruned.search(queries.view(), 200, Allow::Everything, &()).unwrap();
        assert_eq!(found, whole.search(queries.view(), 200, None, &()).unwrap());
        assert_eq!((pruned.len(), pruned.ids()), (194, whole.ids().unwrap().to_vec()));
        let approximations = pruned.reconstruct(&[0, 75], &()).unwrap();
        assert_eq!(approximations, whole.reconstruct(&[0, 75], &()).unwrap());
    }

    #[test]
    fn shards_that_do_not_fit_are_refused() {
        let index = Arc::new(whole(Settings::default(), 10));
        assert!(Shards::new(Vec::new()).is_err());
        assert!(Shard::new(index.clone(), -1, &[]).is_err());
        assert!(Shard::new(index.clone(), i64::MAX - 8, &[]).is_err());
        assert!(Shard::new(index.clone(), 0, &[10]).is_err());
        let other = Arc::new(whole(Settings { metric: Metric::Cosine, ..Settings::default() }, 10));
        let shards = [index, other].map(|index| Shard::new(index, 0, &[]).unwrap());
        assert!(Shards::new(shards.to_vec()).is_err());
    }
}
