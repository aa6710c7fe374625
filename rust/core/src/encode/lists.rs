//! Finds the list of each vector: the one whose centroid has the least loss. Exact, by matrix products with blocks of
//! centroids.

use crate::encode::Loss;
use crate::encode::lanes;
use crate::encode::nearest::power_of_two;
use crate::error::Result;
use crate::isa::{self, Isa, Kernel, Level};
use crate::linalg::gemm::{Panels, Tiles, multiply};
use crate::monitor::{Counter, Monitor};
use crate::parallel;
use crate::vectors::{Vectors, check_dim, read_finite};
use ndarray::{Array1, ArrayView2, Axis};
use rayon::prelude::*;

/// Vectors whose products are computed at once.
const ROWS: usize = 96;
/// Centroids per block: with 96 rows, 200 KB of products, which the L2 cache holds.
const STRIP: usize = 512;

/// Centroids prepared for finding the best one.
///
/// Around the mean m of the centroids, with x' = x − m, c' = c − m and u = x / ‖x‖, the loss of x with c is
///
/// > ‖x'‖² + ‖c'‖² − 2⟨c', x'⟩ + (η − 1) / ‖x‖² · (⟨x', x⟩ − ⟨c', x'⟩ − ⟨c', m⟩)²
///
/// of which only ⟨c', x'⟩ takes time. Far from the origin, no digits of f32 are lost to the common offset.
pub(crate) struct ListFinder {
    isa: Isa,
    dim: usize,
    strips: Vec<Strip>,
    mean: Vec<f32>,
    extra: f64,
    /// Brings the centroids to magnitude 1: no overflow, no underflow.
    scale: f32,
}

struct Strip {
    first: u32,
    panels: Panels,
    /// ‖c'‖² of each centroid, +∞ for padding.
    starts: Vec<f32>,
    /// ⟨c', m⟩ of each centroid.
    offsets: Vec<f32>,
}

impl ListFinder {
    /// Prepares `centroids` (n, d).
    pub(crate) fn new(centroids: ArrayView2<'_, f32>, loss: Loss) -> Result<Self> {
        let dim = centroids.ncols();
        let mut words: Vec<f32> = centroids.iter().copied().collect();
        let mean = centroids.mapv(f64::from).mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(dim));
        let mean: Vec<f32> = mean.iter().map(|&value| value as f32).collect();
        words.chunks_exact_mut(dim).for_each(|word| word.iter_mut().zip(&mean).for_each(|(x, m)| *x -= m));
        let scale = power_of_two(&words);
        words.iter_mut().for_each(|value| *value *= scale);
        let product = |a: &[f32], b: &[f32], by: f32| {
            a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b * by)).sum::<f64>()
        };
        let strips = words.chunks(STRIP * dim).enumerate().map(|(i, words)| {
            let word = |at: usize| words.get(at * dim..(at + 1) * dim);
            let panels = Panels::new(words.len() / dim, dim, word);
            let start = |at| word(at).map_or(f64::INFINITY, |word| product(word, word, 1.0));
            let starts = (0..panels.columns()).map(|at| start(at) as f32).collect();
            let offset = |at| word(at).map_or(0.0, |word| product(word, &mean, scale)) as f32;
            let offsets = (0..panels.columns()).map(offset).collect();
            Strip { first: (i * STRIP) as u32, panels, starts, offsets }
        });
        let strips = strips.collect();
        Ok(Self { isa: Isa::current()?, dim, strips, mean, extra: loss.extra(), scale })
    }

    /// The list of each row of `x` (n, d), and its loss.
    pub(crate) fn find(&self, x: &dyn Vectors, monitor: &dyn Monitor) -> Result<(Vec<u32>, Vec<f32>)> {
        check_dim(x, "X", self.dim)?;
        let counter = Counter::new(monitor, x.n() as u64);
        let (mut lists, mut losses) = (vec![0; x.n()], vec![0.0; x.n()]);
        let rows = parallel::rows(ROWS);
        let chunks = lists.par_chunks_mut(rows).zip(losses.par_chunks_mut(rows)).enumerate();
        let failed = chunks
            .map_init(
                || ListDesk::new(self.dim, rows),
                |desk, (i, (lists, losses))| {
                    let read = &mut desk.x[..lists.len() * self.dim];
                    read_finite(x, "X", i * rows, read)?;
                    isa::run(self.isa, Find { finder: self, desk, lists, losses });
                    counter.add(lists.len() as u64)
                },
            )
            .find_first(Result::is_err);
        failed.unwrap_or(Ok(())).map(|()| (lists, losses))
    }
}

/// The workspace of one thread.
struct ListDesk {
    x: Vec<f32>,
    tiles: Tiles,
    products: Vec<f32>,
    /// For each row: ⟨x', x⟩, (η − 1) / ‖x‖², ‖x'‖², and the least score so far.
    about: Vec<(f32, f32, f64, f32)>,
}

impl ListDesk {
    fn new(dim: usize, rows: usize) -> Self {
        let tiles = Tiles::new(rows, dim);
        let products = vec![0.0; tiles.rows() * STRIP];
        Self { x: vec![0.0; rows * dim], tiles, products, about: vec![(0.0, 0.0, 0.0, 0.0); rows] }
    }
}

struct Find<'a> {
    finder: &'a ListFinder,
    desk: &'a mut ListDesk,
    lists: &'a mut [u32],
    losses: &'a mut [f32],
}

impl Kernel for Find<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Level>(self) {
        let ListFinder { dim, strips, mean, extra, scale, .. } = self.finder;
        let ListDesk { x, tiles, products, about } = self.desk;
        let rows = self.lists.len();
        for (r, x) in x.chunks_exact(*dim).take(rows).enumerate() {
            tiles.set(r, x.iter().zip(mean).map(|(x, m)| (x - m) * scale));
            let (mut along, mut square, mut own) = (0.0f64, 0.0f64, 0.0f64);
            for (&x, m) in x.iter().zip(mean) {
                let (moved, x) = (f64::from((x - m) * scale), f64::from(x * scale));
                along += moved * x;
                square += x * x;
                own += moved * moved;
            }
            let weight = if square > 0.0 { (extra / square) as f32 } else { 0.0 };
            about[r] = (along as f32, weight, own, f32::INFINITY);
            self.lists[r] = 0;
        }
        for Strip { first, panels, starts, offsets } in strips {
            let columns = panels.columns();
            let zeros = [0.0; STRIP];
            multiply::<L>(tiles, rows, panels, &zeros[..columns], products);
            for (r, products) in products.chunks_exact_mut(columns).enumerate().take(rows) {
                let (along, weight, _, least) = &mut about[r];
                for ((p, start), offset) in products.iter_mut().zip(starts).zip(offsets) {
                    let left = *along - *p - offset;
                    *p = (start - (*p + *p)) + (*weight * left) * left;
                }
                let smallest = lanes::fold(&lanes::minima(products));
                if smallest < *least {
                    *least = smallest;
                    self.lists[r] = first + lanes::find(products, smallest) as u32;
                }
            }
        }
        let back = 1.0 / (f64::from(*scale) * f64::from(*scale));
        // A vector beyond f32 is far from all centroids: the first list is as good as any.
        for (loss, (_, _, own, least)) in self.losses.iter_mut().zip(about) {
            *loss = ((*own + f64::from(*least)).max(0.0) * back) as f32;
        }
    }
}
