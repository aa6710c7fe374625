use super::container::{Content, Numbers, Reader, Tensor};
use super::entries::Entries;
use crate::codebooks::{Codebooks, Selection};
use crate::encode::{Encoding, Loss, Start};
use crate::error::Error;
use crate::index::{Index, Settings};
use crate::model::{Grouping, Model, Recipe, Structure, Subspaces};
use crate::vectors::basis::Directions;
use crate::vectors::metric::Metric;
use ndarray::{Array2, Array3, array};
use serde_json::json;
use std::fs;
use std::path::Path;

fn index(settings: Settings) -> Index {
    let codebooks = Codebooks::new(Array3::from_shape_fn((3, 5, 2), |(m, k, j)| (m * k + j) as f32)).unwrap();
    let mut index = Index::with(Model::new(codebooks, Selection::Group), settings).unwrap();
    let codes = Array2::from_shape_fn((100, 3), |(n, m)| ((n + m) % 5) as u8);
    let residuals: Option<Vec<f32>> = settings.residuals.then(|| (0..100).map(|n| n as f32 / 7.0).collect());
    index.add_codes(codes.view(), None, residuals.as_deref(), &()).unwrap();
    let one = settings.residuals.then_some(&[99.0f32][..]);
    index.add_codes(Array2::zeros((1, 3)).view(), Some(&[1000]), one, &()).unwrap();
    index
}

fn all_settings() -> Vec<Settings> {
    let of = |metric| Settings { metric, ..Settings::default() };
    let mut all: Vec<_> = Metric::ALL.map(of).to_vec();
    all.push(Settings { scale: true, ..Settings::default() });
    all.push(Settings { residuals: true, ..Settings::default() });
    all
}

#[test]
fn what_is_saved_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.cc");
    let query = ndarray::array![[0.5f32, 1.0]];
    for settings in all_settings() {
        let index = index(settings);
        index.save(&path).unwrap();
        let loaded = Index::load(&path).unwrap();
        assert_eq!((loaded.model(), loaded.settings()), (index.model(), settings));
        assert_eq!((loaded.codes(), loaded.ids()), (index.codes(), index.ids()));
        let hits = |index: &Index| index.search(query.view(), 101, None, &()).unwrap();
        assert_eq!(hits(&loaded), hits(&index));
        assert_eq!(loaded.numbers(), index.numbers());
        let mut mapped = Index::map(&path).unwrap();
        assert_eq!(hits(&mapped), hits(&index));
        assert_eq!(mapped.remove(&[3], &()).unwrap(), 1);
        assert_eq!(mapped.len(), 100);
        assert_eq!(Index::load(&path).unwrap().codes(), index.codes());
    }
    let index = index(Settings::default());
    assert_eq!(&Model::load(&path).unwrap(), index.model());
    index.model().save(&path).unwrap();
    assert_eq!(&Model::load(&path).unwrap(), index.model());
    assert!(Index::load(&path).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn the_same_index_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    index(Settings::default()).save(&a).unwrap();
    index(Settings::default()).save(&b).unwrap();
    assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
}

#[test]
fn a_file_cut_anywhere_or_with_any_byte_changed_is_an_error() {
    let index = index(Settings { metric: Metric::Euclidean, ..Settings::default() });
    let bytes = index.to_bytes(&()).unwrap();
    for cut in 0..bytes.len() {
        assert!(Index::from_bytes(&bytes[..cut], &()).is_err(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        for flip in [0x01, 0x10] {
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            // Only the kind of white space around the header may change without being noticed.
            if let Ok(loaded) = Index::from_bytes(&changed, &()) {
                assert_eq!(
                    (loaded.model(), loaded.settings()),
                    (index.model(), index.settings()),
                    "byte {at}"
                );
                assert_eq!((loaded.codes(), loaded.ids()), (index.codes(), index.ids()), "byte {at}");
                assert_eq!(loaded.numbers(), index.numbers(), "byte {at}");
            }
        }
    }
}

/// Every way to encode.
fn recipes() -> Vec<Recipe> {
    let of = |encoding| Recipe { encoding, ..Recipe::default() };
    let basis = Some(array![[0.6f32, 0.8, 0.0], [0.8, -0.6, 0.25]]);
    let turn = array![[0.6f32, 0.8], [0.8, -0.6]];
    let structure = |structure| Recipe { structure, ..Recipe::default() };
    vec![
        Recipe::default(),
        of(Encoding::Greedy),
        of(Encoding::Beam { width: 3 }),
        of(Encoding::LocalSearch { start: Start::Beam { width: 7 }, rounds: 5, seed: u64::MAX }),
        Recipe { loss: Loss::inner_product(1.0 + 1.0 / 3.0).unwrap(), ..Recipe::default() },
        Recipe {
            directions: Some(Directions::new(array![[1.0, 2.0f32.sqrt()]]).unwrap()),
            ..Recipe::default()
        },
        structure(Structure::Subspaces(Subspaces::new(vec![1, 1, 1], basis).unwrap())),
        structure(Structure::Groups(Grouping::new(vec![2, 1], vec![1, 1], turn).unwrap())),
    ]
}

#[test]
fn recipes_and_parameters_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.cc");
    for recipe in recipes() {
        let mut model = index(Settings::default()).model().clone();
        model.recipe = recipe;
        model.parameters.insert("history".to_owned(), json!([{ "\u{e9}\"": 0.1 }, null]));
        model.save(&path).unwrap();
        assert_eq!(Model::load(&path).unwrap(), model);
        assert_eq!(Model::from_bytes(&model.to_bytes().unwrap()).unwrap(), model);
        assert_eq!(fs::read(&path).unwrap(), model.to_bytes().unwrap());
    }
    let signs = Recipe { structure: Structure::Signs, ..Recipe::default() };
    let model = Model::with(Codebooks::new(Array3::zeros((1, 256, 3))).unwrap(), Selection::Group, signs);
    assert_eq!(Model::from_bytes(&model.to_bytes().unwrap()).unwrap(), model);
}

#[test]
fn bytes_are_those_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.cc");
    for settings in all_settings() {
        let index = index(settings);
        index.save(&path).unwrap();
        let bytes = index.to_bytes(&()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(Index::from_bytes(&bytes, &()).unwrap().to_bytes(&()).unwrap(), bytes);
        assert_eq!(Index::map(&path).unwrap().to_bytes(&()).unwrap(), bytes);
    }
    let error = Index::from_bytes(b"nonsense", &()).err().unwrap().to_string();
    assert!(error.starts_with("<bytes>: not a compcodes file"), "{error}");
}

#[test]
fn a_file_cut_or_written_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.cc");
    let index = index(Settings::default());
    index.save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let load = |meanwhile: &dyn Fn()| {
        let reader = Reader::new(&path, super::open(&path).unwrap(), &()).unwrap();
        meanwhile();
        reader.index(None)
    };
    let unchanged = || ();
    assert!(load(&unchanged).is_ok());
    for len in [0, 100, bytes.len() - 1] {
        let cut = || fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len as u64).unwrap();
        assert!(matches!(load(&cut), Err(Error::Format { .. })), "cut to {len}");
        fs::write(&path, &bytes).unwrap();
    }
    let other = || fs::write(&path, vec![1; bytes.len()]).unwrap();
    assert!(matches!(load(&other), Err(Error::Format { .. })));
}

/// A mapped index whose file has one byte of codes changed: to one `beyond` the codewords, or within them.
fn damaged(path: &Path, settings: Settings, beyond: bool) -> Index {
    index(settings).save(path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let first = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[first] = if beyond { 200 } else { bytes[first] ^ 1 };
    fs::write(path, bytes).unwrap();
    Index::map(path).unwrap()
}

#[test]
fn damaged_codes_are_found_before_they_are_changed_or_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("index.cc"), folder.path().join("other.cc"));
    for settings in all_settings() {
        for beyond in [true, false] {
            let mapped = || damaged(&path, settings, beyond);
            assert!(Index::load(&path).is_err() || fs::metadata(&path).is_err());
            assert_eq!(mapped().search(array![[0.5f32, 1.0]].view(), 5, None, &()).unwrap().scores.len(), 5);
            let error = |result: crate::Result<()>| result.unwrap_err().to_string();
            let expected = |text: String| assert!(text.contains("codes"), "{text}");
            expected(error(mapped().save(&other)));
            expected(error(mapped().to_bytes(&()).map(drop)));
            expected(error(mapped().remove(&[5], &()).map(drop)));
            expected(error(mapped().add(&array![[1.0f32, 2.0]].view(), None, &())));
            let mut healthy = index(settings);
            healthy.remove(&[1000], &()).unwrap();
            expected(error(healthy.merge(&mapped(), &())));
            assert!(!other.exists());
        }
    }
}

/// The bytes of a file with these tensors and entries, including valid checksums.
fn forged(changed: &[(&str, &str)], replaced: &[(&'static str, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let settings = Settings { metric: Metric::Euclidean, ..Settings::default() };
    let honest = index(settings);
    let bytes = honest.to_bytes(&()).unwrap();
    let reader = Reader::new(Path::new("honest"), std::io::Cursor::new(&bytes[..]), &()).unwrap();
    let mut entries = Entries::new();
    for name in ["kind", "n", "metric", "scale", "exact_norms", "residuals", "centred", "selection"]
        .into_iter()
        .chain(["next_id", "order", "eta", "encoder", "rounds", "seed", "structure"])
    {
        entries.insert(name.to_owned(), reader.text(name).unwrap().to_owned());
    }
    entries.extend(changed.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    let packed = honest.packed();
    if packed.layout().n_nibbles() > 0 {
        entries.entry("nibbles".to_owned()).or_insert_with(|| packed.layout().n_nibbles().to_string());
    }
    let shape = [packed.n_blocks(), packed.n_lines(), 64];
    let mut tensors = vec![Tensor::new("codes", &shape, Numbers::Bytes(packed.as_bytes()))];
    let ids = honest.ids().unwrap();
    tensors.push(Tensor::new("ids", &[ids.len()], &ids[..]));
    let [run] = honest.column().unwrap().as_runs() else { panic!("a run of few vectors") };
    tensors.push(Tensor::new("edges", &[1, 257], &run.edges[..]));
    tensors.push(Tensor::new("biases", &[honest.len()], honest.numbers()));
    let codebooks = honest.model().codebooks.as_slice();
    tensors.push(Tensor::new("codebooks", &[3, 5, 2], codebooks));
    for (name, shape, values) in replaced {
        tensors.retain(|tensor| tensor.name != *name);
        tensors.push(Tensor::new(name, shape, &values[..]));
    }
    let content = Content::new(entries, tensors, &()).unwrap();
    let mut bytes = Vec::new();
    content.write(Path::new("forged"), &mut bytes, &()).unwrap();
    bytes
}

#[test]
fn forged_files_are_errors() {
    assert!(Index::from_bytes(&forged(&[], &[]), &()).is_ok());
    let huge = u64::MAX.to_string();
    for (name, text) in [
        ("n", "0"),
        ("n", "-1"),
        ("n", "200"),
        ("n", &huge),
        ("metric", "manhattan"),
        ("metric", "ip"),
        ("scale", "yes"),
        ("exact_norms", "false"),
        ("residuals", "true"),
        ("centred", "maybe"),
        ("next_id", "1000"),
        ("next_id", &huge),
        ("order", "other"),
        ("trained_for", "cosin"),
        ("selection", "m-selection"),
        ("eta", "NaN"),
        ("eta", "0"),
        ("encoder", "other"),
        ("rounds", &huge),
        ("rounds", ""),
        ("seed", "-1"),
        ("structure", "signs"),
        ("structure", "subspaces"),
        ("structure", "groups"),
        ("parameters", "[]"),
        ("parameters", "{"),
        ("kind", "model"),
    ] {
        let error = Index::from_bytes(&forged(&[(name, text)], &[]), &()).err();
        assert!(matches!(error, Some(Error::Format { .. })), "{name} {text}: {error:?}");
    }
    let falling: Vec<f32> = (0..257).map(|edge| -(edge as f32)).collect();
    for (name, shape, values) in [
        ("codebooks", vec![3, 5, 2], vec![f32::NAN; 30]),
        ("codebooks", vec![3, 10], vec![0.0; 30]),
        ("codebooks", vec![3, 0, 2], vec![]),
        ("codebooks", vec![30, 1, 1], vec![0.0; 30]),
        ("edges", vec![1, 257], falling),
        ("edges", vec![1, 257], vec![f32::INFINITY; 257]),
        ("edges", vec![1, 257], vec![f32::MIN; 257]),
        ("edges", vec![1, 257], vec![0.0; 257]),
        ("edges", vec![2, 257], vec![f32::MIN; 514]),
        ("edges", vec![1, 256], vec![0.0; 256]),
        ("edges", vec![0, 257], vec![]),
        ("runs", vec![1], vec![0.0]),
        ("levels", vec![256], vec![0.0; 256]),
        ("levels", vec![255], vec![0.0; 255]),
        ("biases", vec![101], vec![1.0; 101]),
        ("biases", vec![101], vec![f32::NAN; 101]),
        ("biases", vec![100], vec![-1.0; 100]),
        ("ids", vec![101], vec![1.0; 101]),
        ("codes", vec![2, 4, 64], vec![0.0; 512]),
        ("directions", vec![2, 2], vec![1.0; 4]),
        ("directions", vec![1, 3], vec![1.0; 3]),
    ] {
        let error = Index::from_bytes(&forged(&[], &[(name, shape, values)]), &()).err();
        assert!(matches!(error, Some(Error::Format { .. })), "{name}: {error:?}");
    }
}
