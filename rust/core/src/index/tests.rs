use super::*;
use crate::codebooks::{Codebooks, Selection};
use ndarray::{Array3, Axis, array};

fn index() -> Index {
    let codebooks = Codebooks::new(Array3::from_shape_fn((2, 4, 1), |(m, k, _)| (m * 4 + k) as f32)).unwrap();
    Index::new(Model::new(codebooks, Selection::Group))
}

pub(super) fn model() -> Model {
    let value = |(m, k, j): (usize, usize, usize)| ((m * 7 + k * 13 + j * 5) % 17) as f32 / 4.0 - 2.0;
    Model::new(Codebooks::new(Array3::from_shape_fn((3, 16, 4), value)).unwrap(), Selection::Group)
}

pub(super) fn codes(n: usize) -> Array2<u8> {
    Array2::from_shape_fn((n, 3), |(i, m)| ((i * 31 + m * i / 3 + m) % 16) as u8)
}

#[test]
fn ids_continue_after_the_largest() {
    let mut index = index();
    index.add_codes(array![[0, 0], [1, 1]].view(), None, None, &()).unwrap();
    assert_eq!(index.ids(), None);
    index.add_codes(array![[2, 2]].view(), Some(&[7]), None, &()).unwrap();
    index.add_codes(array![[3, 3]].view(), None, None, &()).unwrap();
    assert_eq!(index.ids(), Some(&[0, 1, 7, 8][..]));
    let hits = index.search(array![[1.0]].view(), 5, None, &()).unwrap();
    assert_eq!(hits.positions, array![[8, 7, 1, 0, -1]]);
    assert_eq!(index.reconstruct(&[7, 0, 7], &()).unwrap(), array![[8.0], [4.0], [8.0]]);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut index = index();
    index.add_codes(array![[0, 0], [1, 1]].view(), Some(&[5, 3]), None, &()).unwrap();
    let one = array![[0, 0]];
    for ids in [&[3][..], &[-1], &[], &[1, 2]] {
        assert!(index.add_codes(one.view(), Some(ids), None, &()).is_err(), "{ids:?}");
    }
    assert!(index.add_codes(array![[0, 0], [0, 0]].view(), Some(&[9, 9]), None, &()).is_err());
    assert!(index.add_codes(array![[0, 4]].view(), None, None, &()).is_err());
    assert!(index.add_codes(array![[0]].view(), None, None, &()).is_err());
    assert!(index.add_codes(one.view(), None, Some(&[1.0]), &()).is_err());
    assert!(index.remove(&[5, 4], &()).is_err());
    assert_eq!((index.len(), index.ids()), (2, Some(&[5, 3][..])));
    assert!(index.reconstruct(&[4], &()).is_err());
}

#[test]
fn scores_are_those_of_the_decoded_vectors() {
    let queries = array![[1.0f32, -0.5, 2.0, 0.25], [0.0, 0.0, 0.0, 0.0], [-3.0, 1.0, 0.5, 2.0]];
    for metric in Metric::ALL {
        for exact_norms in [true, false] {
            let settings = Settings { metric, scale: false, exact_norms, residuals: false };
            let mut index = Index::with(model(), settings).unwrap();
            // In pieces, the later with norms beyond the first ones.
            for piece in codes(300).axis_chunks_iter(Axis(0), 7) {
                index.add_codes(piece, None, None, &()).unwrap();
            }
            let hits = index.search(queries.view(), 300, None, &()).unwrap();
            let decoded = index.reconstruct(&(0..300).collect::<Vec<_>>(), &()).unwrap();
            let tolerance = if metric == Metric::InnerProduct { 1e-4 } else { 1e-6 };
            for (q, query) in queries.outer_iter().enumerate() {
                let mut seen = vec![false; 300];
                for (&id, &score) in hits.positions.row(q).iter().zip(hits.scores.row(q)) {
                    let want =
                        metric.score(query.as_slice().unwrap(), decoded.row(id as usize).as_slice().unwrap());
                    assert!(
                        (f64::from(score) - want).abs() <= tolerance * want.abs().max(1.0),
                        "{metric:?} {exact_norms}: {score} {want}"
                    );
                    seen[id as usize] = true;
                }
                assert!(seen.into_iter().all(|seen| seen));
                assert!(hits.scores.row(q).iter().is_sorted_by(|a, b| a >= b));
            }
        }
    }
}

#[test]
fn removed_vectors_are_gone_and_the_others_stay_in_order() {
    for metric in Metric::ALL {
        let settings = Settings { metric, ..Settings::default() };
        let mut index = Index::with(model(), settings).unwrap();
        index.add_codes(codes(200).view(), None, None, &()).unwrap();
        let removed: Vec<i64> = (0..200).filter(|i| i % 3 == 0).collect();
        assert_eq!(index.remove(&removed, &()).unwrap(), 67);
        index.add_codes(codes(200).view().slice(s![..5, ..]), None, None, &()).unwrap();
        let kept: Vec<i64> = (0..200).filter(|i| i % 3 != 0).chain(200..205).collect();
        assert_eq!(index.ids(), Some(&kept[..]));
        let rows: Vec<usize> = kept.iter().map(|&id| id as usize % 200).collect();
        let mut plain = Index::with(model(), settings).unwrap();
        plain.add_codes(codes(200).select(Axis(0), &rows).view(), Some(&kept), None, &()).unwrap();
        let query = array![[1.0f32, -0.5, 2.0, 0.25]];
        let (a, b) = (index.search(query.view(), 9, None, &()), plain.search(query.view(), 9, None, &()));
        assert_eq!(a.unwrap().positions, b.unwrap().positions);
    }
}

#[test]
fn filters_and_merging() {
    let mut index = Index::new(model());
    index.add_codes(codes(150).view(), None, None, &()).unwrap();
    let mut other = Index::new(model());
    other.add_codes(codes(100).view(), Some(&(1000..1100).collect::<Vec<_>>()), None, &()).unwrap();
    index.merge(&other, &()).unwrap();
    assert!(index.merge(&other, &()).is_err());
    assert_eq!(index.len(), 250);
    let query = array![[1.0f32, -0.5, 2.0, 0.25]];
    let all = index.search(query.view(), 250, None, &()).unwrap().positions;
    for allowed in [
        index.allow_ids(&[3, 1003, 77, 12345], &()).unwrap(),
        index.allow(|id| [3, 1003, 77].contains(&id), &()).unwrap(),
    ] {
        let hits = index.search(query.view(), 5, Some(&allowed), &()).unwrap();
        let want: Vec<i64> =
            all.iter().copied().filter(|id| [3, 1003, 77].contains(id)).chain([-1, -1]).collect();
        assert_eq!(hits.positions.row(0).to_vec(), want);
    }
}

#[test]
fn a_scale_gives_approximations_the_right_length() {
    let settings = Settings { scale: true, ..Settings::default() };
    let x = Array2::from_shape_fn((100, 4), |(i, j)| ((i * 7 + j * 3) % 11) as f32 - 4.9);
    let mut index = Index::with(model(), settings).unwrap();
    index.add(&x.view(), None, &()).unwrap();
    assert_eq!(index.bytes_per_vector(), 3, "three codes of 5 codewords in two bytes, and a level");
    let scales = index.model().scales(&x.view(), index.codes().view(), &()).unwrap();
    for row in (0..100).filter(|&row| (0.25..4.0).contains(&scales[row])) {
        let hits = index.search(x.slice(s![row..=row, ..]), 100, None, &()).unwrap();
        let at = hits.positions.iter().position(|&id| id == row as i64).unwrap();
        let square = squared_norm(x.row(row).as_slice().unwrap());
        assert!((f64::from(hits.scores[[0, at]]) / square - 1.0).abs() < 0.01);
    }
    let mut copy = Index::with(model(), settings).unwrap();
    copy.merge(&index, &()).unwrap();
    let hits = |index: &Index| index.search(x.view(), 20, None, &()).unwrap();
    assert_eq!(hits(&copy), hits(&index));
}

#[test]
fn its_encoder_is_made_once() {
    let mut index = Index::new(model());
    let x = Array2::from_shape_fn((100, 4), |(i, j)| ((i * 7 + j * 3) % 11) as f32 - 4.9);
    index.add(&x.view(), None, &()).unwrap();
    let first: *const dyn Encode = index.encoder().unwrap();
    let mut copy = index.clone();
    copy.add(&x.view(), None, &()).unwrap();
    assert!(std::ptr::eq(first, copy.encoder().unwrap()));
}

#[test]
fn the_largest_residual_follows_what_is_added_and_removed() {
    let settings = Settings { residuals: true, ..Settings::default() };
    let mut index = Index::with(model(), settings).unwrap();
    let residuals: Vec<f32> = (0..200).map(|i| (i * 37 % 200) as f32).collect();
    index.add_codes(codes(200).view(), None, Some(&residuals), &()).unwrap();
    assert_eq!(index.largest, 199.0);
    let mut other = Index::with(model(), settings).unwrap();
    other.add_codes(codes(1).view(), Some(&[777]), Some(&[500.0]), &()).unwrap();
    index.merge(&other, &()).unwrap();
    assert_eq!(index.largest, 500.0);
    index.remove(&[777], &()).unwrap();
    assert_eq!(index.largest, 199.0);
}
