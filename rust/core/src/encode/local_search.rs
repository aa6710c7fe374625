//! Local search: iterated conditional modes with perturbation.
//!
//! A code is improved one codeword at a time: each codebook in turn takes the codeword that is best given all others,
//! until none wants to change. Then a few codewords are changed at random, the others settle anew, and the better of the
//! two codes is kept; and so on, for a number of rounds. (Martinez et al., *Revisiting Additive Quantization*, 2016.)
//!
//! For each vector and codebook a table holds the score of its codewords given the codes of the other codebooks. A table
//! is brought up to date only when it is looked at: where another codebook's codeword has changed from c to c' since, by
//! adding a row of the Gram matrix for c' and subtracting that for c. What is changed and changed back in between costs
//! nothing.

use super::lanes::{self, LANES};

/// What the search of one chunk of vectors works with.
pub(super) struct Tables<'a> {
    /// For each vector M tables of `stride` scores.
    pub(super) tables: &'a mut [f32],
    /// Projections on the vector's direction, laid out like the tables; empty where β is 0.
    pub(super) projections: &'a [f32],
    pub(super) beta: f32,
    pub(super) gram: &'a [f32],
    /// Length of a Gram row.
    pub(super) columns: usize,
    pub(super) stride: usize,
    pub(super) n_codebooks: usize,
    pub(super) n_codewords: usize,
    pub(super) shared: bool,
    pub(super) distinct: bool,
    pub(super) width: usize,
}

const NONE: u16 = u16::MAX;

fn knob(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

pub(super) struct State {
    code: Vec<u16>,
    best: Vec<u16>,
    energy: f64,
    seen: Vec<u16>,
    along: Vec<f32>,
    random: u64,
}

impl State {
    fn new(code: &[u8], seed: u64) -> Self {
        let m = code.len();
        let code: Vec<u16> = code.iter().map(|&c| u16::from(c)).collect();
        Self { best: code.clone(), code, energy: 0.0, seen: vec![NONE; m * m], along: vec![0.0; m], random: seed }
    }
    #[inline(always)]
    fn next(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let z = z ^ (z >> 31);
        ((u128::from(z) * below as u128) >> 64) as usize
    }
}

#[inline(always)]
pub(super) fn search(t: &mut Tables<'_>, rounds: usize, codes: &mut [u8], first: usize, seed: u64) {
    let m = t.n_codebooks;
    let mut rows: Vec<State> =
        codes.chunks(m).enumerate().map(|(r, c)| State::new(c, seed ^ ((first + r) as u64).wrapping_mul(0xD1342543DE82EF95))).collect();
    let kicks = knob("LS_KICKS", 1);
    let sweeps = knob("LS_SWEEPS", 2);
    let mode = knob("LS_MODE", 1);
    let lanes_n = knob("LS_LANES", 1);
    settle(t, &mut rows, knob("LS_SWEEPS0", 4));
    for s in rows.iter_mut() {
        s.best.copy_from_slice(&s.code);
        s.energy = 0.0;
    }
    for _ in 0..rounds {
        for r in 0..rows.len() {
            let s = &mut rows[r];
            for _ in 0..kicks {
                let b = s.next(m);
                refresh(t, r, b, s);
                let table = &t.tables[r * t.width + b * t.stride..][..t.stride];
                let k = match mode {
                    0 => s.next(t.n_codewords),
                    _ => {
                        let mn = lanes::minima(table);
                        let mut best = f32::INFINITY;
                        for _ in 0..lanes_n {
                            let v = mn[s.next(LANES)];
                            best = lanes::min(best, v);
                        }
                        lanes::find(table, best)
                    }
                };
                s.energy += f64::from(table[k] - table[usize::from(s.code[b])]);
                s.code[b] = k as u16;
                s.seen[b * m + b] = NONE;
            }
        }
        settle(t, &mut rows, sweeps);
        for s in rows.iter_mut() {
            if s.energy < 0.0 {
                s.best.copy_from_slice(&s.code);
            } else {
                s.code.copy_from_slice(&s.best);
            }
            s.energy = 0.0;
        }
    }
    for (s, c) in rows.iter().zip(codes.chunks_mut(m)) {
        c.iter_mut().zip(&s.best).for_each(|(c, &b)| *c = b as u8);
    }
}

#[inline(always)]
fn settle(t: &mut Tables<'_>, rows: &mut [State], sweeps: usize) {
    let m = t.n_codebooks;
    for _ in 0..sweeps {
        let mut changed = false;
        for b in 0..m {
            for (r, s) in rows.iter_mut().enumerate() {
                let updated = refresh(t, r, b, s);
                if !updated && s.seen[b * m + b] == s.code[b] {
                    continue;
                }
                let table = &mut t.tables[r * t.width + b * t.stride..][..t.stride];
                let minimum = lanes::fold(&lanes::minima(table));
                let old = usize::from(s.code[b]);
                if minimum < table[old] {
                    let k = lanes::find(table, minimum);
                    s.energy += f64::from(minimum - table[old]);
                    s.code[b] = k as u16;
                    changed = true;
                }
                s.seen[b * m + b] = s.code[b];
            }
        }
        if !changed {
            break;
        }
    }
}

#[inline(always)]
fn refresh(t: &mut Tables<'_>, r: usize, b: usize, s: &mut State) -> bool {
    let m = t.n_codebooks;
    let at = r * t.width + b * t.stride;
    let table = &mut t.tables[at..][..t.stride];
    let mut updated = false;
    let seen = &mut s.seen[b * m..][..m];
    for j in 0..m {
        let (had, has) = (seen[j], s.code[j]);
        if j == b || had == has {
            continue;
        }
        let row = |k: u16| {
            if t.shared {
                &t.gram[usize::from(k) * t.columns..][..t.stride]
            } else {
                &t.gram[(j * t.stride + usize::from(k)) * t.columns + b * t.stride..][..t.stride]
            }
        };
        let plus = row(has);
        if had == NONE {
            lanes::add(table, plus);
        } else {
            lanes::add_difference(table, plus, row(had));
        }
        seen[j] = has;
        updated = true;
    }
    if updated && t.beta > 0.0 {
        let base = r * t.width;
        let mut sum = 0.0;
        for j in 0..m {
            if j != b {
                sum += t.projections[base + j * t.stride + usize::from(s.code[j])];
            }
        }
        let change = 2.0 * t.beta * (sum - s.along[b]);
        s.along[b] = sum;
        lanes::add_multiple(table, change, &t.projections[at..][..t.stride]);
    }
    updated
}
