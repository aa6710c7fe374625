//! Codes and codebooks are the same numbers on every instruction set and every processor: digests that are kept here.
//!
//! `COMPCODES_ISA=scalar` and others force an instruction set, `COMPCODES_CHUNK=7` chunks; 64-bit ARM runs it under
//! emulation. The data are sums of the integers of a generator, and no function of the platform's mathematical library
//! takes part, whose last bits are its own: so vectors weigh alike and there is no noise on the codebooks, whose
//! logarithms and powers it computes.

use compcodes::encode::{Encoding, Loss, Objective, Start, encoder};
use compcodes::model::{Grouping, Recipe, Structure};
use compcodes::train::{Training, train};
use compcodes::{Codebooks, Model, Selection};
use ndarray::{Array2, Array3, Axis};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Near 0, in −2 … 2: a sum of four uniform numbers.
    fn near(&mut self) -> f32 {
        (0..4).map(|_| (self.next() >> 8) as f32 / 2f32.powi(24) - 0.5).sum()
    }
}

/// Vectors around a few centers, (n, d).
fn vectors(n: usize, d: usize, seed: u64) -> Array2<f32> {
    let mut random = Random(seed);
    let centers = Array2::from_shape_simple_fn((9, d), || 4.0 * random.near());
    Array2::from_shape_fn((n, d), |(i, j)| centers[[i * 7 % 9, j]] + random.near())
}

fn codebooks(m: usize, k: usize, d: usize, seed: u64) -> Codebooks {
    let mut random = Random(seed);
    Codebooks::new(Array3::from_shape_simple_fn((m, k, d), || random.near())).unwrap()
}

/// FNV-1a.
fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes
        .into_iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

fn of_codes(codes: &Array2<u8>) -> u64 {
    assert!(codes.is_standard_layout());
    digest(codes.iter().copied())
}

/// The digest of the bits of numbers.
fn of_numbers(numbers: &[f32]) -> u64 {
    digest(numbers.iter().flat_map(|value| value.to_bits().to_le_bytes()))
}

fn losses() -> [Objective; 2] {
    [Objective::default(), Loss::inner_product(4.0).unwrap().into()]
}

const LOCAL: Encoding = Encoding::LocalSearch { start: Start::Greedy, rounds: Encoding::ROUNDS, seed: 0 };

#[test]
fn codes_are_the_same_everywhere() {
    // Tails of registers, tiles and panels; half-byte codes; more codewords than registers hold.
    let shapes = [(4, 16, 12), (3, 100, 37), (8, 256, 33)];
    let encodings = [Encoding::Greedy, Encoding::Beam { width: 5 }, LOCAL];
    let mut found = Vec::new();
    for (m, k, d) in shapes {
        let (x, books) = (vectors(211, d, 1), codebooks(m, k, d, 2));
        for objective in losses() {
            for encoding in encodings {
                let encoder = encoder(&books, Selection::Group, &objective, encoding).unwrap();
                found.push(of_codes(&encoder.encode(&x.view(), &()).unwrap()));
            }
        }
    }
    assert_eq!(found, CODES, "{found:#X?}");
}

#[test]
fn codes_in_groups_are_the_same_everywhere() {
    // Four dimensions each, of columns ±½: Hadamard's matrix of four, once for each group.
    let (groups, members, k) = (3, 2, 50);
    let d = 4 * groups;
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 0.5f32 } else { -0.5 };
    let basis = Array2::from_shape_fn((d, d), |(i, j)| if i / 4 == j / 4 { sign(i % 4, j % 4) } else { 0.0 });
    let x = vectors(150, d, 3);
    let mut own = codebooks(groups * members, k, d, 4).into_inner();
    for (m, mut book) in own.axis_iter_mut(Axis(0)).enumerate() {
        let columns = 4 * (m / members)..4 * (m / members + 1);
        for mut word in book.outer_iter_mut() {
            let inside: Vec<f32> = columns.clone().map(|column| word[column]).collect();
            for (i, value) in word.iter_mut().enumerate() {
                *value = columns.clone().zip(&inside).map(|(j, w)| basis[[i, j]] * w).sum();
            }
        }
    }
    let books = Codebooks::new(own).unwrap();
    let mut found = Vec::new();
    for objective in losses() {
        let grouping = Grouping::new(vec![members; groups], vec![4; groups], basis.clone()).unwrap();
        let structure = Structure::Groups(grouping);
        let recipe = Recipe { loss: objective.loss, encoding: LOCAL, structure, ..Recipe::default() };
        let model = Model::with(books.clone(), Selection::Group, recipe);
        found.push(of_codes(&model.encoder().unwrap().encode(&x.view(), &()).unwrap()));
    }
    assert_eq!(found, IN_GROUPS, "{found:#X?}");
}

#[test]
fn codebooks_are_the_same_everywhere() {
    let x = vectors(500, 13, 5);
    let mut found = Vec::new();
    for objective in losses() {
        let training = Training {
            n_codebooks: 3,
            n_codewords: 20,
            objective,
            weight_power: 0.0,
            anneal: 0,
            max_iter: Some(3),
            tolerance: 0.0,
            ..Training::default()
        };
        let trained = train(&x.view(), &training, &()).unwrap();
        assert_eq!(trained.history.len(), 4);
        found.push((of_numbers(trained.codebooks.as_slice()), of_codes(&trained.codes)));
    }
    assert_eq!(found, TRAINED, "{found:#X?}");
}

/// For each shape greedy, beam and local search, by the squared error and then by the loss for inner products.
const CODES: [u64; 18] = [
    0x910D_C5F8_DA9B_882E,
    0x5E58_70F7_B308_9D67,
    0xC24F_2F1C_DDF7_C673,
    0xBE61_5090_1B39_62E9,
    0xDAD9_8377_23D9_C074,
    0xEC78_0F61_EDF0_5955,
    0xA6CD_7849_A079_ABAC,
    0x3E27_8415_82F4_F4EA,
    0xBBFD_CE42_0DA4_DA10,
    0xA829_ED97_964D_737D,
    0xC8D4_E1EC_B722_C733,
    0xC8D4_E1EC_B722_C733,
    0xC04B_114B_4CB0_8883,
    0x6AF6_0348_C408_DE12,
    0xD6A7_2DA0_6070_036E,
    0x3DD2_675C_CDEC_1700,
    0x6C00_9DAC_31CF_55C8,
    0xD623_9851_2269_CA36,
];
/// Codes in groups, by the squared error and by the loss for inner products.
const IN_GROUPS: [u64; 2] = [0xB344_3906_03F8_3D70, 0x92A3_8DCC_9C3E_B658];
/// For the same two losses: codebooks, and the codes of the training.
const TRAINED: [(u64, u64); 2] =
    [(0xAFFF_1D6A_87BF_DAF1, 0xC17D_5C86_B716_5358), (0x065A_BCE4_05D3_2D6E, 0x73EA_1150_AE8C_E9AB)];
