# Examples of each command for its page (commands.py); tests check each line against the program.
xaibench audit mine.py:network --images scans --classes normal,nodule        # verdicts, and an evidence sheet
xaibench audit torchvision:resnet18 --images scans --no-labels               # class folders that it does not know
xaibench audit mine.py:network --images scans --masks lesions --train        # with masks, and a planted trigger
xaibench audit net.onnx --images table.parquet --output sigmoid --samples 60   # independent labels, more images
xaibench compare runs/before runs/after                 # significant changes
xaibench compare runs/a runs/b runs/c --out moved.csv    # each compared with the first; all rows in a file
xaibench leaderboard results --out site    # write the static site of a results repository
xaibench leaderboard hf://ann/results      # of a repository on the Hub
xaibench leaderboard results --strict      # stop at a result that cannot be shown
xaibench list explainers                   # names for suites, calls and options
xaibench list datasets --root ~/data       # which annotated sets are ready
xaibench prepare pet --root ~/data --download   # fetch, build and count
xaibench prepare tumor --root ~/data            # how to get it by hand, or its content
xaibench push xai-tris/lin-white-8x8 ann/tetrominoes --seed 3         # list what would be uploaded
xaibench push runs/xai-tris-8x8 ann/xai-tris-scores --yes
xaibench report runs/xai-tris-8x8   # write tables, figures and page again; nothing is computed
xaibench networks list                                  # published networks
xaibench networks check xai-tris-8x8                    # train them again and compare
xaibench results add runs/mine --out results             # a result for each method of a run
xaibench results check results                           # valid, and exactly the rows of their suites; runs nothing
xaibench results verify results --new --record           # run the library methods again; list them in verified.csv
xaibench results verify results/squared --explainers mine.py:squared   # EXECUTES mine.py
xaibench run xai-tris-8x8 --quick                              # a small form, in a minute
xaibench run xai-tris-8x8 --plan                               # estimate the cost before it starts
xaibench run saliency-bench --root ~/data --datasets pet,pascal --model resnet50
xaibench run my-suite.toml --out runs/mine --workers 8         # your suite, with your methods
xaibench run xai-tris-8x8 --train                              # train every network, also the published ones
xaibench run xai-tris-64x64 --engine ray --address auto --out /shared/run
xaibench score maps.npz --dataset pet --root ~/data --template   # a file with the samples' ids, to fill in
xaibench score maps.npz --dataset pet --root ~/data              # scores next to the controls
xaibench score maps.npz --dataset xai-tris/lin-corr-8x8 --metrics emd_perf,topk_precision --out scores.csv
xaibench show pet --root ~/data --out pets.png            # images, masks and classes
xaibench show folder:shapes --out shapes.png --count 12   # your folder
