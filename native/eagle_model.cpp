// Models: load, describe, tokenize. A draft is given the embeddings and the head that it lacks from its target.

#include "eagle_internal.h"

#include "ggml-backend.h"

#include <algorithm>
#include <cstring>

namespace {

void init_backend_once() {
    static const bool done = [] {
        llama_backend_init();
        return true;
    }();
    (void) done;
}

[[noreturn]] void refuse(const std::string & text) {
    throw eagle_invalid(text);
}

void check_draft_fits(const llama_model & draft, const llama_model & target) {
    const auto & ids = draft.target_layer_ids;
    const uint32_t width = ids.empty() ? 0 : draft.hparams.n_embd_inp_enc() / ids.size();
    if (width != target.hparams.n_embd) {
        refuse("the draft was made for a target of hidden size " + std::to_string(width) + ", this one has " +
               std::to_string(target.hparams.n_embd));
    }
    if (draft.vocab.n_tokens() != target.vocab.n_tokens()) {
        refuse("the draft was made for a vocabulary of " + std::to_string(draft.vocab.n_tokens()) +
               " tokens, the target has " + std::to_string(target.vocab.n_tokens()));
    }
    for (const int32_t id : ids) {
        if (id < EAGLE_POST_NORM || id > (int32_t) target.hparams.n_layer()) {
            refuse("the draft reads the input of layer " + std::to_string(id) + ", the target has layers 0 to " +
                   std::to_string(target.hparams.n_layer()));
        }
    }
}

void share_tensor(ggml_tensor *& own, ggml_tensor * other, int64_t width, int64_t rows, const char * what) {
    if (other == nullptr) {
        refuse(std::string("neither the draft nor the target has ") + what);
    }
    if (other->ne[0] != width || other->ne[1] < rows) {
        refuse(std::string("the draft has no ") + what + " and cannot use the target's of " + std::to_string(other->ne[1]) + " x " +
               std::to_string(other->ne[0]) + ": it needs " + std::to_string(rows) + " x " + std::to_string(width));
    }
    own = other;
}

// a head is shared with all that the target does to its logits right behind it; softcaps and scales of all logits are not the draft's
void share_head(llama_model & draft, const llama_model & target, int64_t width, int64_t rows) {
    share_tensor(draft.output, target.output != nullptr ? target.output : target.tok_embd, width, rows, "output head");
    draft.output_s = target.output_s;
    draft.output_b = target.output_b;
}

void bind_target(llama_model & draft, const eagle_model * target) {
    if (target == nullptr) {
        if (draft.tok_embd == nullptr || draft.output == nullptr) {
            refuse("this draft has no embeddings or head of its own: load it with its target");
        }
        return;
    }
    check_draft_fits(draft, *target->llama);
    const int64_t width = draft.hparams.n_embd;
    const int64_t rows  = draft.vocab.n_tokens();
    if (draft.tok_embd == nullptr) {
        share_tensor(draft.tok_embd, target->llama->tok_embd, width, rows, "token embeddings");
    }
    if (draft.output == nullptr) {
        share_head(draft, *target->llama, width, rows);
    }
}

void check_d2t(const llama_model & draft) {
    const ggml_tensor * d2t = draft.d2t;
    if (d2t == nullptr) {
        return;
    }
    if (d2t->type != GGML_TYPE_I64) {
        refuse(std::string("d2t is of type ") + ggml_type_name(d2t->type) + ", expected i64");
    }
    if (draft.output != nullptr && draft.output->ne[1] != d2t->ne[0]) {
        refuse("d2t has " + std::to_string(d2t->ne[0]) + " entries, the draft's head " + std::to_string(draft.output->ne[1]));
    }
    std::vector<int64_t> ids(d2t->ne[0]);
    ggml_backend_tensor_get(d2t, ids.data(), 0, ids.size() * sizeof(int64_t));
    for (const int64_t id : ids) {
        if (id < 0 || id >= (int64_t) draft.vocab.n_tokens()) {
            refuse("d2t maps to token " + std::to_string(id) + ", the vocabulary has " + std::to_string(draft.vocab.n_tokens()));
        }
    }
}

void load_llama(eagle_model & model, const char * path, const llama_model_params & mparams) {
    eagle_log_take_error();
    model.llama = llama_model_load_from_file(path, mparams);
    if (model.llama == nullptr) {
        const std::string cause = eagle_log_take_error();
        refuse(cause.empty() ? "llama.cpp could not load the file" : cause);
    }
}

eagle_model * load(const char * path, const eagle_model_params & params) {
    init_backend_once();

    llama_model_params mparams = llama_model_default_params();
    mparams.n_gpu_layers = params.n_gpu_layers;
    mparams.load_mode    = params.use_mmap ? LLAMA_LOAD_MODE_AUTO : LLAMA_LOAD_MODE_NONE;
    mparams.vocab_only   = params.vocab_only != 0;

    auto model = std::make_unique<eagle_model>();
    load_llama(*model, path, mparams);
    if (model->is_draft() && !params.vocab_only) {
        bind_target(*model->llama, params.target);
        check_d2t(*model->llama);
    }
    return model.release();
}

} // namespace

std::unique_ptr<eagle_model> eagle_model_outline(const char * path, int32_t n_gpu_layers, const eagle_model * target) {
    init_backend_once();

    llama_model_params mparams = llama_model_default_params();
    mparams.n_gpu_layers = n_gpu_layers;
    mparams.load_mode    = LLAMA_LOAD_MODE_NONE;
    mparams.no_alloc     = true;

    auto model = std::make_unique<eagle_model>();
    load_llama(*model, path, mparams);
    if (model->is_draft()) {
        bind_target(*model->llama, target);
    }
    return model;
}

const char * eagle_llama_cpp(void) {
    static const std::string text = std::string(llama_print_system_info());
    return text.c_str();
}

int32_t eagle_backends_load(const char * dir) {
    ggml_backend_load_all_from_path(dir);
    return ggml_backend_dev_count();
}

int32_t eagle_device_count(void) {
    return ggml_backend_dev_count();
}

int32_t eagle_device_describe(int32_t index, char * name, int32_t name_size, char * description, int32_t description_size,
                              uint64_t * memory_free, uint64_t * memory_total, int32_t * type) {
    if (index < 0 || index >= eagle_device_count()) {
        return EAGLE_INVALID;
    }
    ggml_backend_dev_t dev = ggml_backend_dev_get(index);
    size_t free = 0;
    size_t total = 0;
    ggml_backend_dev_memory(dev, &free, &total);
    eagle_copy_text(ggml_backend_dev_name(dev), name, name_size);
    eagle_copy_text(ggml_backend_dev_description(dev), description, description_size);
    *memory_free  = free;
    *memory_total = total;
    *type         = ggml_backend_dev_type(dev);
    return EAGLE_OK;
}

eagle_model * eagle_model_load(const char * path, const eagle_model_params * params, char * error, int32_t error_size) {
    try {
        return load(path, *params);
    } catch (const std::exception & e) {
        eagle_copy_text(e.what(), error, error_size);
    } catch (...) {
        eagle_copy_text("unknown exception in llama.cpp", error, error_size);
    }
    return nullptr;
}

void eagle_model_free(eagle_model * model) {
    delete model;
}

int32_t eagle_model_describe(const eagle_model * model, eagle_model_info * info) {
    const llama_model * llama = model->llama;
    const llama_vocab * vocab = llama_model_get_vocab(llama);
    const auto & ids = llama->target_layer_ids;

    *info = {};
    info->n_vocab       = llama_vocab_n_tokens(vocab);
    info->n_logits      = llama->d2t != nullptr ? (int32_t) llama->d2t->ne[0] : info->n_vocab;
    info->n_embd        = llama_model_n_embd(llama);
    info->n_layer       = llama_model_n_layer(llama);
    info->n_ctx_train   = llama_model_n_ctx_train(llama);
    info->is_draft      = model->is_draft();
    info->n_features    = std::min<int32_t>(ids.size(), EAGLE_MAX_FEATURES);
    std::copy_n(ids.begin(), info->n_features, info->features);
    info->n_embd_target = info->n_features > 0 ? llama->hparams.n_embd_inp_enc() / ids.size() : 0;
    info->is_recurrent  = llama_model_is_recurrent(llama) || llama_model_is_hybrid(llama);
    info->token_bos     = llama_vocab_bos(vocab);
    info->token_eos     = llama_vocab_eos(vocab);
    info->vocab_type    = llama_vocab_type(vocab);
    info->add_bos       = llama_vocab_get_add_bos(vocab);
    info->n_params      = llama_model_n_params(llama);
    info->size          = llama_model_size(llama);
    return EAGLE_OK;
}

int32_t eagle_model_meta(const eagle_model * model, const char * key, char * value, int32_t size) {
    return llama_model_meta_val_str(model->llama, key, value, size);
}

int32_t eagle_model_d2t(const eagle_model * model, int32_t * ids) {
    const ggml_tensor * d2t = model->llama->d2t;
    if (d2t == nullptr) {
        return 0;
    }
    std::vector<int64_t> wide(d2t->ne[0]);
    ggml_backend_tensor_get(d2t, wide.data(), 0, wide.size() * sizeof(int64_t));
    std::copy(wide.begin(), wide.end(), ids);
    return 1;
}

int32_t eagle_model_tokenize(const eagle_model * model, const char * text, int32_t length, int32_t * tokens, int32_t size,
                             int32_t add_special, int32_t parse_special) {
    try {
        return llama_tokenize(llama_model_get_vocab(model->llama), text, length, tokens, size, add_special != 0, parse_special != 0);
    } catch (...) {
        return INT32_MIN;
    }
}

int32_t eagle_model_piece(const eagle_model * model, int32_t token, char * text, int32_t size, int32_t special) {
    const llama_vocab * vocab = llama_model_get_vocab(model->llama);
    if (token < 0 || token >= llama_vocab_n_tokens(vocab)) {
        return INT32_MIN;
    }
    try {
        return llama_token_to_piece(vocab, token, text, size, 0, special != 0);
    } catch (...) {
        return INT32_MIN;
    }
}

int32_t eagle_model_is_eog(const eagle_model * model, int32_t token) {
    return llama_vocab_is_eog(llama_model_get_vocab(model->llama), token);
}
