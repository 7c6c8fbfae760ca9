// Draft logits of an EAGLE-3 head by upstream's own library, without our patches: what upstream_heads.py compares with.
//
//   upstream_logits TARGET.gguf HEAD.gguf INPUT OUTPUT
//
// Built by upstream_heads.py; by hand, with SOURCE the unpatched llama.cpp and BUILD a build of it with shared libraries:
//   c++ -std=c++17 -ISOURCE/include -ISOURCE/ggml/include -ISOURCE/src scripts/upstream_logits.cpp
//       -LBUILD/bin -Wl,-rpath,BUILD/bin -lllama -lggml -lggml-base -o upstream_logits
//
// INPUT:  int32 rows, steps, width; int32 tokens[rows + steps]; float32 features[rows][width].
// OUTPUT: float32 logits[rows + steps][vocabulary], -inf where the draft has no token.
// The rows are encoded and decoded as one batch; each step then feeds back the output before it with the next token.
// Calls and parameters are those of common/speculative.cpp (common_speculative_impl_draft_eagle3); the cache is f32 and
// flash attention off, so that two libraries can be compared beyond the rounding of f16.

#include "llama-ext.h"
#include "llama.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static void check(bool ok, const std::string & what) {
    if (!ok) {
        throw std::runtime_error(what);
    }
}

struct input {
    int32_t rows, steps, width;
    std::vector<llama_token> tokens;
    std::vector<float> features;

    explicit input(const char * path) {
        std::ifstream file(path, std::ios::binary);
        int32_t sizes[3];
        file.read((char *) sizes, sizeof(sizes));
        check(file && sizes[0] > 0 && sizes[1] >= 0 && sizes[2] > 0, std::string("no input: ") + path);
        rows = sizes[0], steps = sizes[1], width = sizes[2];
        tokens.resize(rows + steps);
        features.resize((size_t) rows * width);
        file.read((char *) tokens.data(), tokens.size() * sizeof(tokens[0]));
        file.read((char *) features.data(), features.size() * sizeof(features[0]));
        check(bool(file), std::string("input is cut short: ") + path);
    }
};

using model_ptr   = std::unique_ptr<llama_model,     decltype(&llama_model_free)>;
using context_ptr = std::unique_ptr<llama_context,   decltype(&llama_free)>;
using batch_ptr   = std::unique_ptr<llama_batch_ext, decltype(&llama_batch_ext_free)>;

static model_ptr load(const char * path) {
    model_ptr model(llama_model_load_from_file(path, llama_model_default_params()), llama_model_free);
    check(bool(model), std::string("did not load: ") + path);
    return model;
}

static context_ptr open(llama_model * model, llama_context * other) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.ctx_other = other;
    context_ptr context(llama_init_from_model(model, params), llama_free);
    check(bool(context), "no context");
    return context;
}

// encodes features (tokens null) or decodes pairs, from position `first` on; what comes out is in the context
static void process(llama_context * ctx, const llama_token * tokens, const float * embd, size_t width, int32_t count, llama_pos first) {
    batch_ptr batch(llama_batch_ext_init(ctx), llama_batch_ext_free);
    for (int32_t i = 0; i < count; ++i) {
        const llama_embd row = { embd + i * width, 1, width };
        const llama_pos pos = first + i;
        const int32_t idx = tokens ? llama_batch_ext_add_token(batch.get(), 0, tokens[i]) : llama_batch_ext_add_embd(batch.get(), 0, row);
        check(idx == i && (!tokens || llama_batch_ext_set_embd_token(batch.get(), idx, row)) &&
              llama_batch_ext_set_pos(batch.get(), idx, &pos) &&
              llama_batch_ext_set_output_logits(batch.get(), idx, true), "the batch refused a row");
    }
    const auto type = tokens ? LLAMA_PROCESS_TYPE_DECODE : LLAMA_PROCESS_TYPE_ENCODE;
    check(llama_process(ctx, type, batch.get()) == 0, tokens ? "decode failed" : "encode failed");
}

static void run(char ** argv) {
    const input in(argv[3]);
    const model_ptr target = load(argv[1]), head = load(argv[2]);
    const context_ptr ctx_tgt = open(target.get(), nullptr), ctx_dft = open(head.get(), ctx_tgt.get());
    llama_context * ctx = ctx_dft.get();
    llama_set_embeddings_nextn(ctx, true, /*masked*/ true);
    check(in.width == (int32_t) llama_model_target_layer_ids_n(head.get()) * llama_model_n_embd(target.get()),
          "wrong width of features: " + std::to_string(in.width));

    const size_t n_embd = llama_model_n_embd(head.get()), n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(head.get()));
    std::ofstream out(argv[4], std::ios::binary);
    process(ctx, nullptr, in.features.data(), in.width, in.rows, 0);
    const float * states = llama_get_embeddings_nextn(ctx);
    check(states, "the encoder gave nothing");
    std::vector<float> embd(states, states + in.rows * n_embd);
    for (int32_t done = 0, count = in.rows; done < in.rows + in.steps; done += count, count = 1) {
        process(ctx, in.tokens.data() + done, embd.data(), n_embd, count, done);
        for (int32_t i = 0; i < count; ++i) {
            out.write((const char *) llama_get_logits_ith(ctx, i), n_vocab * sizeof(float));
        }
        states = llama_get_embeddings_nextn_ith(ctx, count - 1);
        embd.assign(states, states + n_embd);
    }
    check(bool(out.flush()), std::string("cannot write ") + argv[4]);
}

int main(int argc, char ** argv) {
    llama_log_set([](ggml_log_level level, const char * text, void *) { if (level == GGML_LOG_LEVEL_ERROR) { fputs(text, stderr); } }, nullptr);
    try {
        check(argc == 5, "usage: upstream_logits TARGET.gguf HEAD.gguf INPUT OUTPUT");
        run(argv);
    } catch (const std::exception & error) {
        fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
    return 0;
}
