//! The scan equals a full sort of the scores as they are defined, to the bit: on every instruction set that this
//! machine has, over shapes chosen for their tails, tables made to break bounds, filters, scales, biases, and threads.
//!
//! Worth running again with `COMPCODES_CHUNK=7`: every boundary between chunks is met then.

use compcodes::codes::packed::PackedCodes;
use compcodes::isa::Isa;
use compcodes::scan::tables::Tables;
use compcodes::scan::{Adjust, Hits, Levels, Options, levels_above, search};
use ndarray::{Array2, Array3, ArrayView2, Axis, concatenate};
use std::cmp::Ordering;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// In −1 … 1.
    fn unit(&mut self) -> f32 {
        self.next() as f32 / 2f32.powi(31) - 1.0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A kind of tables: its name, and an entry of table m.
type Kind = (&'static str, fn(&mut Random, usize) -> f32);

const KINDS: [Kind; 16] = [
    ("uniform", |r, _| r.unit()),
    ("falling", |r, m| r.unit() * 0.7f32.powi(m as i32)),
    ("far from 0", |r, _| 1000.0 + r.unit() + r.unit() + r.unit()),
    ("lost in rounding", |r, _| 1e6 + r.unit()),
    ("negative", |r, _| -5.0 - r.unit()),
    ("small integers", |r, _| r.below(3) as f32),
    ("all equal", |_, _| 0.1),
    ("all zero", |_, _| 0.0),
    ("one huge entry", |r, _| if r.below(500) == 0 { 1e7 } else { r.unit() }),
    ("±1e30", |r, _| if r.below(2) == 0 { 1e30 } else { -1e30 }),
    ("near overflow", |r, _| r.unit() * 3e38),
    ("infinities", |r, _| if r.below(100) == 0 { f32::INFINITY * r.unit() } else { r.unit() }),
    ("NaN", |r, _| if r.below(100) == 0 { f32::NAN } else { r.unit() }),
    ("denormal", |r, _| r.unit() * 1e-40),
    ("tiny", |r, _| r.unit() * 1e-30),
    ("magnitudes apart", |r, m| r.unit() * 10f32.powi(m as i32 % 7 * 4 - 12)),
];

/// Kinds of codes: all alike likely, constant, two far apart, skewed.
const CODES: [fn(&mut Random) -> usize; 4] =
    [|r| r.below(256), |_| 3, |r| r.below(2) * 255, |r| r.below(16) * r.below(16)];

/// Scores as they are defined: table entries added in order, from 0; times the scale, plus the bias.
fn define(
    codes: ArrayView2<'_, u8>,
    tables: &Tables,
    query: usize,
    scale: Option<&[f32]>,
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let scores = codes.rows().into_iter().enumerate().map(|(n, row)| {
        let mut score = 0.0;
        for (m, &code) in row.iter().enumerate() {
            score += tables.query(query)[m][usize::from(code)];
        }
        score *= scale.map_or(1.0, |scale| scale[n]);
        score += bias.map_or(0.0, |bias| bias[n]);
        if score.is_nan() { f32::NEG_INFINITY } else { score }
    });
    scores.collect()
}

fn full_sort(scores: &[Vec<f32>], allowed: impl Fn(usize) -> bool, k: usize) -> Hits {
    let shape = (scores.len(), k);
    let mut hits =
        Hits { scores: Array2::from_elem(shape, f32::NEG_INFINITY), positions: Array2::from_elem(shape, -1) };
    for (query, scores) in scores.iter().enumerate() {
        let mut order: Vec<usize> = (0..scores.len()).filter(|&n| allowed(n)).collect();
        order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap_or(Ordering::Equal).then(a.cmp(&b)));
        for (rank, &n) in order.iter().take(k).enumerate() {
            hits.scores[[query, rank]] = scores[n];
            hits.positions[[query, rank]] = n as i64;
        }
    }
    hits
}

fn assert_equal(got: &Hits, want: &Hits, what: &str) {
    let bits = |hits: &Hits| hits.scores.map(|score| (score + 0.0).to_bits());
    assert!(got.positions == want.positions && bits(got) == bits(want), "{what}:\n{got:?}\nwant\n{want:?}");
}

#[derive(Debug)]
struct Case {
    n: usize,
    m: usize,
    n_codewords: usize,
    nq: usize,
    k: usize,
    /// Bits: scale, bias, exact bias.
    adjust: usize,
    /// Every how manieth vector is allowed.
    filter: Option<usize>,
}

/// One case on every instruction set and on several numbers of threads.
fn run(case: &Case, (kind, entry): Kind, seed: u64) {
    let &Case { n, m, n_codewords, nq, k, adjust, filter } = case;
    let r = &mut Random(seed);
    let code = r.of(&CODES);
    let codes = Array2::from_shape_simple_fn((n, m), || (code(r) % n_codewords) as u8);
    let tables = Array3::from_shape_fn((nq, m, n_codewords), |(_, m, _)| entry(r, m));
    let tables = Tables::from_array(tables.view()).unwrap();

    // What goes into the columns after the codes.
    let spread = r.of(&[0.1, 3.0, 40.0]);
    let scale_levels: Levels = std::array::from_fn(|_| (r.unit() * spread).exp2());
    let scale_bytes: Vec<u8> = (0..n).map(|_| r.next() as u8).collect();
    let scales: Vec<f32> = scale_bytes.iter().map(|&byte| scale_levels[usize::from(byte)]).collect();
    let size = r.of(&[1e-3, 1.0, 1e3]) * entry(r, 0).abs().clamp(1e-3, 1e30);
    let exact: Vec<f32> = (0..n).map(|_| r.unit() * size).collect();
    let (bias_levels, bias_bytes) = levels_above(&exact);
    let rounded: Vec<f32> = bias_bytes.iter().map(|&byte| bias_levels[usize::from(byte)]).collect();
    let [has_scale, has_bias, is_exact] = [1, 2, 4].map(|bit| adjust & bit > 0);

    let mut columns = codes.clone();
    for bytes in [has_scale.then_some(scale_bytes), has_bias.then_some(bias_bytes)].into_iter().flatten() {
        let column = Array2::from_shape_vec((n, 1), bytes).unwrap();
        columns = concatenate(Axis(1), &[columns.view(), column.view()]).unwrap();
    }
    let packed = PackedCodes::pack(columns.view()).unwrap();
    let mut allowed = vec![0; n.div_ceil(64)];
    (0..n).filter(|_| r.below(filter.unwrap_or(1)) == 0).for_each(|n| allowed[n / 64] |= 1u64 << (n % 64));
    let options = Options {
        allowed: filter.is_some().then_some(&allowed[..]),
        adjust: Adjust {
            scale: has_scale.then_some(&scale_levels),
            bias: has_bias.then_some(&bias_levels),
            exact_bias: is_exact.then_some(&exact[..]),
        },
    };

    let bias = if is_exact { &exact } else { &rounded };
    let (scale, bias) = (has_scale.then_some(&scales[..]), has_bias.then_some(&bias[..]));
    let scores: Vec<_> = (0..nq).map(|query| define(codes.view(), &tables, query, scale, bias)).collect();
    let want = full_sort(&scores, |n| allowed[n / 64] >> (n % 64) & 1 > 0, k);
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let got = pool.install(|| search(packed.view(), &tables, k, options, isa, &())).unwrap();
            assert_equal(&got, &want, &format!("{kind}, {case:?}, {threads} threads, {}", isa.name()));
        }
    }
}

#[test]
fn every_kind_and_tail() {
    let skipped: Vec<_> = Isa::ALL.into_iter().filter(|isa| !isa.is_available()).map(Isa::name).collect();
    eprintln!("instruction sets skipped, this machine lacks them: {skipped:?}");
    let mut seed = 0;
    for kind in KINDS {
        for n in [0, 1, 63, 64, 65, 130, 511, 512, 577, 1500] {
            for m in [1, 2, 7, 8, 64] {
                seed += 1;
                let r = &mut Random(seed);
                let (k, n_codewords) = (r.of(&[1, 2, 10, 64, 100, 1000]), r.of(&[256, 256, 256, 255, 16, 1]));
                run(&Case { n, m, n_codewords, nq: r.below(4), k, adjust: 0, filter: None }, kind, seed);
            }
        }
    }
}

#[test]
fn every_adjustment_and_filter() {
    let mut seed = 1000;
    for kind in KINDS {
        for adjust in [1, 2, 3, 6, 7] {
            for filter in [None, Some(2), Some(50), Some(3000), Some(usize::MAX)] {
                seed += 1;
                let r = &mut Random(seed);
                let (n, m, k) = (r.of(&[1, 64, 700, 3001]), r.of(&[1, 3, 8, 16, 64]), r.of(&[1, 10, 200]));
                run(&Case { n, m, n_codewords: 256, nq: 2, k, adjust, filter }, kind, seed);
            }
        }
    }
}

/// Long enough for guesses, segments and groups of queries.
#[test]
fn long_ones() {
    let mut seed = 2000;
    for kind in [0, 1, 2, 3, 5, 6, 8].map(|i| KINDS[i]) {
        for (n, nq, k) in [(70_001, 1, 100), (140_000, 2, 300), (40_000, 40, 1), (3000, 150, 20)] {
            for (adjust, filter) in [(0, None), (1, Some(1)), (2, Some(2)), (7, Some(50)), (0, Some(3000))] {
                seed += 1;
                run(&Case { n, m: 4, n_codewords: 256, nq, k, adjust, filter }, kind, seed);
            }
        }
    }
}

/// The best are all in the sample that the first floor is guessed from: it is too high, and must not be believed. With
/// 64 tables, enough vectors below the guess pass the filter to fill the k places, though not the right ones.
#[test]
fn a_guess_that_is_too_high() {
    let n = 400_000;
    for (m, k) in [(2, 6000), (64, 1700)] {
        let r = &mut Random(3);
        let codes = Array2::from_shape_fn((n, m), |(n, _)| {
            let sampled = n / 512 % 32 == 0;
            (if sampled { 128 + r.below(128) } else { r.below(180) }) as u8
        });
        let tables = Array3::from_shape_fn((1, m, 256), |(_, _, k)| k as f32 + 0.1 * r.unit());
        let tables = Tables::from_array(tables.view()).unwrap();
        let packed = PackedCodes::pack(codes.view()).unwrap();
        let want = full_sort(&[define(codes.view(), &tables, 0, None, None)], |_| true, k);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let got = search(packed.view(), &tables, k, Options::default(), isa, &()).unwrap();
            assert_equal(&got, &want, isa.name());
        }
    }
}

#[test]
fn a_monitor_hears_of_every_vector_and_can_stop() {
    let packed = PackedCodes::pack(Array2::from_elem((100_000, 8), 1).view()).unwrap();
    let tables = Tables::from_array(Array3::zeros((3, 8, 256)).view()).unwrap();
    let last = std::sync::Mutex::new((0, 0));
    let monitor = |done: u64, total: u64| {
        let mut last = last.lock().unwrap();
        *last = (last.0.max(done), total);
        true
    };
    search(packed.view(), &tables, 1, Options::default(), Isa::Scalar, &monitor).unwrap();
    assert_eq!(*last.lock().unwrap(), (300_000, 300_000));
    let stop = |_: u64, _: u64| false;
    let stopped = search(packed.view(), &tables, 1, Options::default(), Isa::Scalar, &stop);
    assert!(matches!(stopped, Err(compcodes::Error::Cancelled)));
}

/// Whether a search with `m` tables over 100 vectors of 3 columns is refused.
fn refused(m: usize, options: Options<'_>) -> bool {
    let packed = PackedCodes::pack(Array2::zeros((100, 3)).view()).unwrap();
    let tables = Tables::from_array(Array3::zeros((1, m, 256)).view()).unwrap();
    search(packed.view(), &tables, 1, options, Isa::Scalar, &()).is_err()
}

#[test]
fn refuses_what_does_not_fit() {
    fn adjust<'a>(
        scale: Option<&'a Levels>,
        bias: Option<&'a Levels>,
        exact: Option<&'a [f32]>,
    ) -> Options<'a> {
        Options { adjust: Adjust { scale, bias, exact_bias: exact }, ..Options::default() }
    }
    let (levels, exact) = ([1.0; 256], [1.0; 100]);
    assert!(!refused(3, Options::default()));
    assert!(refused(2, Options::default()));
    assert!(refused(3, Options { allowed: Some(&[1]), ..Options::default() }));
    assert!(!refused(2, adjust(None, Some(&levels), Some(&exact))));
    assert!(refused(2, adjust(None, Some(&levels), Some(&exact[1..]))));
    assert!(refused(3, adjust(None, None, Some(&exact))));
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-30] {
        assert!(refused(2, adjust(Some(&[scale; 256]), None, None)));
    }
}
